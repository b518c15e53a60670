//! Names of what TLS numbers (IANA's registry of TLS parameters).

use rustls::CipherSuite;

/// Name of a version as a hello or a record says it, as `TLS 1.2`. `None`: no such version is known.
pub fn version_name(version: u16) -> Option<&'static str> {
    const DRAFTS: [&str; 15] = [
        "TLS 1.3-draft14",
        "TLS 1.3-draft15",
        "TLS 1.3-draft16",
        "TLS 1.3-draft17",
        "TLS 1.3-draft18",
        "TLS 1.3-draft19",
        "TLS 1.3-draft20",
        "TLS 1.3-draft21",
        "TLS 1.3-draft22",
        "TLS 1.3-draft23",
        "TLS 1.3-draft24",
        "TLS 1.3-draft25",
        "TLS 1.3-draft26",
        "TLS 1.3-draft27",
        "TLS 1.3-draft28",
    ];
    Some(match version {
        0x0002 => "SSLv2",
        0x0300 => "SSLv3",
        0x0301 => "TLS 1.0",
        0x0302 => "TLS 1.1",
        0x0303 => "TLS 1.2",
        0x0304 => "TLS 1.3",
        0xfeff => "DTLS 1.0",
        0xfefd => "DTLS 1.2",
        0xfefc => "DTLS 1.3",
        _ => {
            return DRAFTS
                .get(usize::from(version.wrapping_sub(0x7f0e)))
                .copied();
        }
    })
}

/// Name of a cipher suite, as `TLS_AES_128_GCM_SHA256`.
pub fn cipher_name(cipher: u16) -> Option<&'static str> {
    match cipher {
        // Drafts that were never registered.
        0x47..=0x5f | 0x72..=0x7f => None,
        _ => find(CIPHERS, cipher).or_else(|| CipherSuite::from(cipher).as_str()),
    }
}

/// Name of a group of key exchange, as `x25519`.
pub fn group_name(group: u16) -> Option<&'static str> {
    find(GROUPS, group)
}

/// Name of an alert's description, as `handshake_failure`.
pub fn alert_name(description: u8) -> Option<&'static str> {
    find(ALERTS, u16::from(description))
}

fn find(table: &[(u16, &'static str)], wanted: u16) -> Option<&'static str> {
    let place = table.binary_search_by_key(&wanted, |entry| entry.0).ok()?;
    table.get(place).map(|entry| entry.1)
}

/// In order of number.
#[rustfmt::skip]
const ALERTS: &[(u16, &str)] = &[
    (0x00, "close_notify"),
    (0x01, "end_of_early_data"),
    (0x0a, "unexpected_message"),
    (0x14, "bad_record_mac"),
    (0x15, "decryption_failed"),
    (0x16, "record_overflow"),
    (0x1e, "decompression_failure"),
    (0x28, "handshake_failure"),
    (0x29, "no_certificate"),
    (0x2a, "bad_certificate"),
    (0x2b, "unsupported_certificate"),
    (0x2c, "certificate_revoked"),
    (0x2d, "certificate_expired"),
    (0x2e, "certificate_unknown"),
    (0x2f, "illegal_parameter"),
    (0x30, "unknown_ca"),
    (0x31, "access_denied"),
    (0x32, "decode_error"),
    (0x33, "decrypt_error"),
    (0x3c, "export_restriction"),
    (0x46, "protocol_version"),
    (0x47, "insufficient_security"),
    (0x50, "internal_error"),
    (0x56, "inappropriate_fallback"),
    (0x5a, "user_canceled"),
    (0x64, "no_renegotiation"),
    (0x6d, "missing_extension"),
    (0x6e, "unsupported_extension"),
    (0x6f, "certificate_unobtainable"),
    (0x70, "unrecognized_name"),
    (0x71, "bad_certificate_status_response"),
    (0x72, "bad_certificate_hash_value"),
    (0x73, "unknown_psk_identity"),
    (0x74, "certificate_required"),
    (0x78, "no_application_protocol"),
    (0x79, "ech_required"),
];

/// In order of number.
#[rustfmt::skip]
const GROUPS: &[(u16, &str)] = &[
    (0x0001, "sect163k1"),
    (0x0002, "sect163r1"),
    (0x0003, "sect163r2"),
    (0x0004, "sect193r1"),
    (0x0005, "sect193r2"),
    (0x0006, "sect233k1"),
    (0x0007, "sect233r1"),
    (0x0008, "sect239k1"),
    (0x0009, "sect283k1"),
    (0x000a, "sect283r1"),
    (0x000b, "sect409k1"),
    (0x000c, "sect409r1"),
    (0x000d, "sect571k1"),
    (0x000e, "sect571r1"),
    (0x000f, "secp160k1"),
    (0x0010, "secp160r1"),
    (0x0011, "secp160r2"),
    (0x0012, "secp192k1"),
    (0x0013, "secp192r1"),
    (0x0014, "secp224k1"),
    (0x0015, "secp224r1"),
    (0x0016, "secp256k1"),
    (0x0017, "secp256r1"),
    (0x0018, "secp384r1"),
    (0x0019, "secp521r1"),
    (0x001a, "brainpoolP256r1"),
    (0x001b, "brainpoolP384r1"),
    (0x001c, "brainpoolP512r1"),
    (0x001d, "x25519"),
    (0x001e, "x448"),
    (0x001f, "brainpoolP256r1tls13"),
    (0x0020, "brainpoolP384r1tls13"),
    (0x0021, "brainpoolP512r1tls13"),
    (0x0029, "curveSM2"),
    (0x0100, "ffdhe2048"),
    (0x0101, "ffdhe3072"),
    (0x0102, "ffdhe4096"),
    (0x0103, "ffdhe6144"),
    (0x0104, "ffdhe8192"),
    (0x0200, "MLKEM512"),
    (0x0201, "MLKEM768"),
    (0x0202, "MLKEM1024"),
    (0x11eb, "SecP256r1MLKEM768"),
    (0x11ec, "X25519MLKEM768"),
    (0x11ed, "SecP384r1MLKEM1024"),
    (0x6399, "X25519Kyber768Draft00"),
    (0x639a, "SecP256r1Kyber768Draft00"),
    (0xff01, "arbitrary_explicit_prime_curves"),
    (0xff02, "arbitrary_explicit_char2_curves"),
];

/// Cipher suites whose names `rustls` does not have, or has in another form. In order of number.
#[rustfmt::skip]
const CIPHERS: &[(u16, &str)] = &[
    (0x001e, "TLS_KRB5_WITH_DES_CBC_SHA"),
    (0x00c6, "TLS_SM4_GCM_SM3"),
    (0x00c7, "TLS_SM4_CCM_SM3"),
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
    (0x5600, "TLS_FALLBACK_SCSV"),
    (0xc0b0, "TLS_ECCPWD_WITH_AES_128_GCM_SHA256"),
    (0xc0b1, "TLS_ECCPWD_WITH_AES_256_GCM_SHA384"),
    (0xc0b2, "TLS_ECCPWD_WITH_AES_128_CCM_SHA256"),
    (0xc0b3, "TLS_ECCPWD_WITH_AES_256_CCM_SHA384"),
    (0xc0b4, "TLS_SHA256_SHA256"),
    (0xc0b5, "TLS_SHA384_SHA384"),
    (0xc0ff, "TLS_ECJPAKE_WITH_AES_128_CCM_8"),
    (0xc100, "TLS_GOSTR341112_256_WITH_KUZNYECHIK_CTR_OMAC"),
    (0xc101, "TLS_GOSTR341112_256_WITH_MAGMA_CTR_OMAC"),
    (0xc102, "TLS_GOSTR341112_256_WITH_28147_CNT_IMIT"),
    (0xc103, "TLS_GOSTR341112_256_WITH_KUZNYECHIK_MGM_L"),
    (0xc104, "TLS_GOSTR341112_256_WITH_MAGMA_MGM_L"),
    (0xc105, "TLS_GOSTR341112_256_WITH_KUZNYECHIK_MGM_S"),
    (0xc106, "TLS_GOSTR341112_256_WITH_MAGMA_MGM_S"),
    (0xcc13, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcc14, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcc15, "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xd001, "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256"),
    (0xd002, "TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384"),
    (0xd003, "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256"),
    (0xd005, "TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256"),
    (0xe001, "ECDHE_SM1_SM3"),
    (0xe003, "ECC_SM1_SM3"),
    (0xe005, "IBSDH_SM1_SM3"),
    (0xe007, "IBC_SM1_SM3"),
    (0xe009, "RSA_SM1_SM3"),
    (0xe00a, "RSA_SM1_SHA1"),
    (0xe011, "ECDHE_SM4_CBC_SM3"),
    (0xe013, "ECC_SM4_CBC_SM3"),
    (0xe015, "IBSDH_SM4_CBC_SM3"),
    (0xe017, "IBC_SM4_CBC_SM3"),
    (0xe019, "RSA_SM4_CBC_SM3"),
    (0xe01a, "RSA_SM4_CBC_SHA1"),
    (0xe01c, "RSA_SM4_CBC_SHA256"),
    (0xe051, "ECDHE_SM4_GCM_SM3"),
    (0xe053, "ECC_SM4_GCM_SM3"),
    (0xe055, "IBSDH_SM4_GCM_SM3"),
    (0xe057, "IBC_SM4_GCM_SM3"),
    (0xe059, "RSA_SM4_GCM_SM3"),
    (0xe05a, "RSA_SM4_GCM_SHA256"),
    (0xe410, "TLS_RSA_WITH_ESTREAM_SALSA20_SHA1"),
    (0xe411, "TLS_RSA_WITH_SALSA20_SHA1"),
    (0xe412, "TLS_ECDHE_RSA_WITH_ESTREAM_SALSA20_SHA1"),
    (0xe413, "TLS_ECDHE_RSA_WITH_SALSA20_SHA1"),
    (0xe414, "TLS_ECDHE_ECDSA_WITH_ESTREAM_SALSA20_SHA1"),
    (0xe415, "TLS_ECDHE_ECDSA_WITH_SALSA20_SHA1"),
    (0xe416, "TLS_PSK_WITH_ESTREAM_SALSA20_SHA1"),
    (0xe417, "TLS_PSK_WITH_SALSA20_SHA1"),
    (0xe418, "TLS_ECDHE_PSK_WITH_ESTREAM_SALSA20_SHA1"),
    (0xe419, "TLS_ECDHE_PSK_WITH_SALSA20_SHA1"),
    (0xe41a, "TLS_RSA_PSK_WITH_ESTREAM_SALSA20_SHA1"),
    (0xe41b, "TLS_RSA_PSK_WITH_SALSA20_SHA1"),
    (0xe41c, "TLS_DHE_PSK_WITH_ESTREAM_SALSA20_SHA1"),
    (0xe41d, "TLS_DHE_PSK_WITH_SALSA20_SHA1"),
    (0xe41e, "TLS_DHE_RSA_WITH_ESTREAM_SALSA20_SHA1"),
    (0xe41f, "TLS_DHE_RSA_WITH_SALSA20_SHA1"),
    (0xffe0, "SSL_RSA_FIPS_WITH_3DES_EDE_CBC_SHA"),
    (0xffe1, "SSL_RSA_FIPS_WITH_DES_CBC_SHA"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order() {
        for table in [CIPHERS, GROUPS, ALERTS] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        assert_eq!(cipher_name(0x1301), Some("TLS_AES_128_GCM_SHA256"));
        assert_eq!(
            cipher_name(0xc02f),
            Some("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
        );
        assert_eq!(cipher_name(0xe011), Some("ECDHE_SM4_CBC_SM3"));
        for unknown in [0x0a0a, 0x47, 0x7c] {
            assert_eq!(cipher_name(unknown), None, "{unknown:#x}");
        }
        let known = (0..=u16::MAX).filter_map(cipher_name);
        assert_eq!(
            (known.clone().count(), known.map(str::len).sum::<usize>()),
            (406, 13_382)
        );
        assert_eq!(group_name(29), Some("x25519"));
        assert_eq!(alert_name(40), Some("handshake_failure"));
        assert_eq!(version_name(0x7f17), Some("TLS 1.3-draft23"));
        assert_eq!(version_name(0x7f00), None);
    }
}
