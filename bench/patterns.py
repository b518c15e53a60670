#!/usr/bin/env python3
"""Writes a set of patterns such as an intrusion detection system searches for.

2,120 is the number of web attack strings in the Scap paper's pattern matching experiment. Ours are
made up: paths of scripts, commands, parameters, names of scanners, header lines, shell code and
magic numbers, in lengths from 4 to 48 bytes, a tenth of them without regard to case. About one in
fifty also occurs in what `flowgauge generate` writes, rarely or often, so that there is something
to find. The same seed gives the same patterns.

usage: bench/patterns.py [--count N] [--seed N] --text FILE [--hex FILE]

--text is read by `flowgauge match --patterns`; --hex has a letter (s: as it is, i: ignoring case) and
the bytes in hexadecimal, for programs that should not have to parse anything.
"""

import argparse
import random

COUNT = 2120
FOLDERS = ["cgi-bin", "scripts", "admin", "wp-content/plugins", "phpmyadmin", "iisadmpwd", "_vti_bin", "servlet", "cfdocs",
           "manager/html", "webmail", "includes", "modules", "components", "forum", "gallery", "shop", "api/v1", "axis2", "jmx-console"]
STEMS = ["test", "upload", "config", "login", "search", "view", "count", "finger", "phf", "wrap", "query", "info", "php",
         "guestbook", "survey", "formmail", "mailer", "redirect", "download", "calendar", "banner", "board", "stats", "webdist",
         "htsearch", "campas", "nph-publish", "perl", "whois", "textcounter", "anyform", "aglimpse", "handler", "pfdispaly"]
ENDINGS = [".cgi", ".pl", ".php", ".asp", ".aspx", ".jsp", ".exe", ".dll", ".cfm", ".sh", ".bat", ".inc", ".old", ".bak", ".htr", ".idq"]
PARAMETERS = ["cmd", "file", "page", "dir", "path", "include", "url", "id", "user", "exec", "action", "mosConfig_absolute_path",
              "phpbb_root_path", "sql", "template", "lang", "debug", "root", "option", "query"]
VALUES = ["../../../etc/passwd", "..%2f..%2f", "%00", "http://", "ftp://", "|id|", ";id;", "`id`", "1=1--", "' or '", "union+select",
          "<script>", "%3Cscript%3E", "javascript:", "/bin/sh", "cmd.exe", "/c+dir", "xp_cmdshell", "${jndi:ldap", "php://input"]
AGENTS = ["Nikto/", "sqlmap/", "Nessus", "w3af.org", "DirBuster", "masscan/", "ZmEu", "Morfeus", "Arachni/", "Wfuzz/", "Acunetix", "WPScan"]
HEADERS = ["X-Forwarded-For: ", "Transfer-Encoding: ", "Content-Range: ", "Proxy-Authorization: ", "X-Original-URL: ", "Translate: ", "Lock-Token: ",
           "SOAPAction: ", "Destination: ", "Depth: infinity", "Authorization: Basic ", "Via: "]
COMMANDS = ["/bin/ps", "/usr/bin/id", "/bin/ls", "uname -a", "wget%20", "curl%20", "tftp%20", "nc%20-l", "chmod%20", "rm%20-rf", "cat%20/", "gcc%20-o",
            "python%20", "perl%20-e", "xterm%20-display", "net%20user", "netstat%20-an", "/usr/X11R6/bin/xterm", "traceroute%20", "tclsh8%20"]
# These occur in generated traffic.
PRESENT = ["python-requests/", "Windows NT 10.0; Win64; x64", "404 Not Found", "Location: ", "HEAD /", "POST /stream", "site4711.example",
           "Transfer-Encoding: chunked", "font/woff2", "500 Internal"]


def one(rng):
    """A pattern: bytes, and whether case counts."""
    kind = rng.random()
    if kind < 0.40:
        text = f"/{rng.choice(FOLDERS)}/{rng.choice(STEMS)}{rng.choice(['', '-', '_', rng.choice(STEMS)])}{rng.choice(ENDINGS)}"
    elif kind < 0.50:
        text = f"/{rng.choice(STEMS)}{rng.randrange(100)}{rng.choice(ENDINGS)}"
    elif kind < 0.68:
        text = f"{rng.choice(['?', '&', ''])}{rng.choice(PARAMETERS)}={rng.choice(VALUES)}"
    elif kind < 0.76:
        text = f"{rng.choice(COMMANDS)}{rng.choice(['', ' ', '%20'])}{rng.choice(STEMS)}"
    elif kind < 0.82:
        text = f"{rng.choice(AGENTS)}{rng.randrange(1, 9)}.{rng.randrange(20)}"
    elif kind < 0.90:
        text = f"{rng.choice(HEADERS)}{rng.choice(VALUES)}"
    elif kind < 0.92:
        text = f"{rng.choice(PRESENT)}"
        if rng.random() < 0.6:
            text += rng.choice(["%n", "\r\n\r\nSELECT", "../..", "<!--"])
    elif kind < 0.94:
        return bytes(rng.choice(b"abcdefghijklmnopqrstuvwxyz_-%/.") for _ in range(rng.randrange(4, 7))), True
    else:
        length = rng.randrange(6, 25)
        return bytes([rng.choice([0x90, 0xEB, 0x31, 0xC0])] * rng.randrange(0, 4)) + rng.randbytes(length), True
    return text.encode(), rng.random() >= 0.1


def patterns(count, seed):
    rng = random.Random(seed)
    found = {}
    while len(found) < count:
        pattern = one(rng)
        found.setdefault(pattern[0].lower(), pattern)
    return list(found.values())


def content(text, case):
    """As an option of Snort's rules."""
    def escaped(byte):
        if byte in b'"|;:\\' or not 0x20 <= byte < 0x7F:
            return f"|{byte:02x}|"
        return chr(byte)

    body = "".join(map(escaped, text)).replace("||", " ")
    return f'content:"{body}";' + ("" if case else " nocase;")


def write(made, text, hex=None):
    """Writes patterns in each form that has a file name."""
    with open(text, "w") as file:
        file.writelines(content(*pattern) + "\n" for pattern in made)
    if hex:
        with open(hex, "w") as file:
            file.writelines(f"{'s' if case else 'i'} {pattern.hex()}\n" for pattern, case in made)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", required=True)
    parser.add_argument("--hex")
    options = parser.parse_args()
    write(patterns(options.count, options.seed), options.text, options.hex)


if __name__ == "__main__":
    main()
