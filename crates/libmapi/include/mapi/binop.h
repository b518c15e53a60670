/* Operations of BINOP. */
#ifndef _MAPI_BINOP_H
#define _MAPI_BINOP_H 1

#define ADD 0
#define SUB 1

#endif
