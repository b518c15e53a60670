#include "mapi/res2file.h"
