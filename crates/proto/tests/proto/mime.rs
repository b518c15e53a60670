//! Parts of mails under any damage.

use crate::fuzz;
use proptest::prelude::*;

const MAIL: &str = "From: a\r\nContent-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\n\r\n..first\r\n--o\r\n\
    Content-Type: multipart/mixed; boundary=\"i\"\r\n\r\n--i\r\nContent-Transfer-Encoding: quoted-printable\r\n\
    Content-Disposition: attachment; filename*0*=utf-8''a%20; filename*1=b\r\n\r\na=3Db=\r\nc\r\n--i--\r\n--o\r\n\
    Content-Type: message/rfc822\r\n\r\nContent-Type: x/y; name=\"=?iso-8859-1?q?a_=FC?=\"\r\n\
    Content-Transfer-Encoding: base64\r\n\r\nZm9v\r\nYg==\r\n--o--\r\n";

proptest! {
    #[test]
    fn nothing_panics(
        first in any::<u8>(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..8),
        holes in prop::collection::vec((any::<u8>(), 0_u8..64), 1..20),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut whole = MAIL.as_bytes().to_vec();
        for (place, byte) in changes {
            let place = place % whole.len();
            whole[place] = byte;
        }
        let mut pieces = vec![first];
        let mut rest = whole.as_slice();
        for (missing, length) in holes.iter().cycle().take(500) {
            let (piece, behind) = rest.split_at(rest.len().min(usize::from(*length)));
            match missing {
                0..200 => pieces.push(*length),
                _ => pieces.extend([*length | 0x80, *missing]),
            }
            pieces.extend_from_slice(piece);
            rest = behind;
        }
        pieces.extend(bytes);
        fuzz::mime(&pieces);
    }
}
