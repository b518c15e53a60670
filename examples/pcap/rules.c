/* Rules in Snort's syntax, as far as payloads and ports go: addresses and other options are not looked at, so that more packets
 * match than in Snort. */
#define _GNU_SOURCE
#include <ctype.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "nids.h"

#define PORTS 65536

enum { WITH = 1, WITHOUT };

/* Ports that rules name so; others must be written as numbers. */
static const char *const NAMED[][2] = {
    {"$HTTP_PORTS", "80,591,593,3128,8000,8008,8080,8081,8888"},
    {"$SHELLCODE_PORTS", "!80"},
    {"$ORACLE_PORTS", "1521"},
    {"$SSH_PORTS", "22"},
    {"$FTP_PORTS", "21,2100,3535"},
    {"$FILE_DATA_PORTS", "80,110,143,591,593,3128,8000,8008,8080,8081,8888"},
};

static const char *file;
static unsigned line;

static void __attribute__((noreturn, format(printf, 2, 3))) wrong(const char *hint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "nids: %s:%u: ", file, line);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\nhint: %s\n", hint);
    va_end(arguments);
    exit(2);
}

static void *made_or_end(void *made, size_t bytes)
{
    if (made == NULL) {
        fprintf(stderr, "nids: no memory for %zu bytes\nhint: take fewer rules\n", bytes);
        exit(1);
    }
    return made;
}

void *allocated(size_t bytes)
{
    return made_or_end(calloc(1, bytes + 1), bytes);
}

void *grown(void *array, size_t count, size_t size)
{
    if (count & (count - 1))
        return array;
    size_t bytes = (count ? 2 * count : 1) * size;
    return made_or_end(realloc(array, bytes), bytes);
}

/* One port or a range ("80", "1024:", ":1023"). */
static struct range range_of(const char *text)
{
    bool open = *text == ':';
    char *end = (char *)text;
    unsigned long low = open ? 0 : strtoul(text, &end, 10);
    unsigned long high = low;
    if (*end == ':') {
        end++;
        high = *end ? strtoul(end, &end, 10) : PORTS - 1;
    }
    if (*end || !isdigit((unsigned char)text[open]) || low > high || high >= PORTS)
        wrong("ports are numbers, LOW:HIGH, [LIST] or any", "\"%s\" is not a port", text);
    return (struct range){(uint16_t)low, (uint16_t)high};
}

static struct ports ports_of(char *text)
{
    struct ports made = {NULL, 0};
    if (strcasecmp(text, "any") == 0)
        return made;
    /* Many rules in a row are for the same ports. */
    static char *before_text;
    static struct ports before_ports;
    if (before_text && strcmp(before_text, text) == 0)
        return before_ports;
    free(before_text);
    before_text = strdup(text);
    char list[256];
    int except = *text == '!';
    text += except;
    if (*text == '$') {
        size_t at = 0;
        while (at < sizeof NAMED / sizeof *NAMED && strcmp(NAMED[at][0], text) != 0)
            at++;
        if (at == sizeof NAMED / sizeof *NAMED)
            wrong("write the ports instead", "nothing is known of ports %s", text);
        text = strcpy(list, NAMED[at][1]);
    }
    unsigned char *named = allocated(PORTS);
    bool any = true, empty = true;
    size_t highest = 0;
    char *rest = text;
    for (char *part; (part = strtok_r(rest, "[],", &rest)) != NULL;) {
        bool without = (*part == '!') != except;
        struct range range = range_of(part + (*part == '!'));
        any &= without;
        empty = false;
        highest = range.high > highest ? range.high : highest;
        for (size_t port = range.low; port <= range.high; port++)
            if (named[port] != WITHOUT)
                named[port] = without ? WITHOUT : WITH;
    }
    if (empty)
        wrong("ports are numbers, LOW:HIGH, [LIST] or any", "a list of ports is empty");
    bool before = false;
    for (size_t port = 0; port <= (any ? PORTS - 1 : highest); port++) {
        bool wanted = named[port] == WITH || (any && named[port] != WITHOUT);
        if (wanted && before) {
            made.ranges[made.count - 1].high = (uint16_t)port;
        } else if (wanted) {
            made.ranges = grown(made.ranges, made.count, sizeof *made.ranges);
            made.ranges[made.count++] = (struct range){(uint16_t)port, (uint16_t)port};
        }
        before = wanted;
    }
    if (made.count == 0)
        wrong("a list that begins with ! is of ports that are not meant", "no port is left");
    free(named);
    before_ports = made;
    return made;
}

bool ports_have(const struct ports *ports, uint16_t port)
{
    for (size_t i = 0; i < ports->count; i++)
        if (port >= ports->ranges[i].low && port <= ports->ranges[i].high)
            return true;
    return ports->count == 0;
}

/* Text in quotation marks: a backslash stands before what would end it, bars around bytes in hexadecimal. */
static struct content content_of(const char *text)
{
    struct content made = {allocated(strlen(text)), 0, 0, 0, false, *text == '!', false};
    text += made.negated;
    bool hexadecimal = false;
    if (*text != '"')
        wrong("write content:\"...\";", "a content is not in quotation marks");
    for (text++; *text && *text != '"'; text++) {
        unsigned byte;
        if (*text == '|') {
            hexadecimal = !hexadecimal;
        } else if (hexadecimal && isspace((unsigned char)*text)) {
            continue;
        } else if (hexadecimal) {
            if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]) || sscanf(text, "%2x", &byte) != 1)
                wrong("two digits are a byte: |0D 0A|", "\"%.8s\" in a content is not hexadecimal", text);
            made.bytes[made.length++] = (unsigned char)byte;
            text++;
        } else {
            text += *text == '\\';
            made.bytes[made.length++] = (unsigned char)*text;
        }
    }
    if (*text != '"' || hexadecimal || made.length == 0)
        wrong("it ends with a quotation mark, and bars come in pairs", "a content is empty or not ended");
    return made;
}

/* One option of a rule, without what surrounds it. */
static void option(struct rule *rule, char *text)
{
    char *value = strchr(text, ':');
    if (value) {
        *value++ = '\0';
        value += strspn(value, " ");
    }
    struct content *last = rule->count ? &rule->contents[rule->count - 1] : NULL;
    if (value && strcmp(text, "sid") == 0) {
        rule->sid = (unsigned)strtoul(value, NULL, 10);
    } else if (value && (strcmp(text, "content") == 0 || strcmp(text, "uricontent") == 0)) {
        rule->contents = grown(rule->contents, rule->count, sizeof *rule->contents);
        rule->contents[rule->count++] = content_of(value);
    } else if (last && strcmp(text, "nocase") == 0) {
        last->nocase = true;
    } else if (last && value && strcmp(text, "offset") == 0) {
        last->offset = strtoul(value, NULL, 10);
    } else if (last && value && strcmp(text, "depth") == 0) {
        last->depth = strtoul(value, NULL, 10);
    } else if (last && value && strcmp(text, "distance") == 0) {
        last->after = true;
    }
}

/* Options end with semicolons, which may be in quotation marks, too. */
static void options(struct rule *rule, char *text)
{
    bool quoted = false;
    for (char *start = text; *text; text++) {
        if (*text == '\\' && text[1]) {
            text++;
        } else if (*text == '"') {
            quoted = !quoted;
        } else if (*text == ';' && !quoted) {
            *text = '\0';
            option(rule, start + strspn(start, " "));
            start = text + 1;
        }
    }
    if (quoted)
        wrong("each quotation mark has another; in a content it is \\\"", "a quotation mark is not closed");
}

/* The positive content that is longest is searched for. Whether there is one. */
static bool choose(struct rule *rule)
{
    size_t most = 0;
    for (size_t i = 0; i < rule->count; i++)
        if (!rule->contents[i].negated && rule->contents[i].length > most) {
            most = rule->contents[i].length;
            rule->longest = i;
        }
    return most > 0;
}

static void add(struct rules *rules, const struct rule *rule, uint8_t protocol, bool reversed)
{
    rules->list = grown(rules->list, rules->count, sizeof *rules->list);
    struct rule *made = &rules->list[rules->count++];
    *made = *rule;
    made->protocol = protocol;
    if (reversed) {
        made->ports[SOURCE] = rule->ports[DESTINATION];
        made->ports[DESTINATION] = rule->ports[SOURCE];
    }
}

static void rule_of(struct rules *rules, char *text)
{
    char *body = strchr(text, '(');
    char *end = strrchr(text, ')');
    if (body == NULL || end == NULL || end < body)
        wrong("alert tcp any any -> any 80 (content:\"...\"; sid:1;)", "a rule has no options in parentheses");
    *body++ = *end = '\0';
    char *word[7], *rest = text;
    size_t words = 0;
    while (words < 7 && (word[words] = strtok_r(rest, " \t", &rest)) != NULL)
        words++;
    if (words < 7 || (strcmp(word[4], "->") != 0 && strcmp(word[4], "<>") != 0))
        wrong("alert tcp ADDRESS PORT -> ADDRESS PORT (...); lists have no spaces", "this is not a head of a rule");
    bool tcp = strcmp(word[1], "tcp") == 0, udp = strcmp(word[1], "udp") == 0, ip = strcmp(word[1], "ip") == 0;
    struct rule rule = {0};
    options(&rule, body);
    if (!choose(&rule) || !(tcp || udp || ip)) {
        rules->left_out++;
        return;
    }
    rule.ports[SOURCE] = ports_of(word[3]);
    rule.ports[DESTINATION] = ports_of(word[6]);
    bool both = word[4][0] == '<' && (rule.ports[SOURCE].count || rule.ports[DESTINATION].count);
    for (int reversed = 0; reversed <= both; reversed++) {
        if (tcp || ip)
            add(rules, &rule, IPPROTO_TCP, reversed);
        if (udp || ip)
            add(rules, &rule, IPPROTO_UDP, reversed);
    }
}

struct rules rules_read(const char *path)
{
    struct rules rules = {NULL, 0, 0};
    char *text = NULL;
    size_t room = 0;
    ssize_t length;
    FILE *opened = fopen(path, "r");
    file = path;
    if (opened == NULL) {
        perror(path);
        exit(2);
    }
    for (line = 1; (length = getline(&text, &room, opened)) > 0; line++) {
        text[strcspn(text, "\r\n")] = '\0';
        char *start = text + strspn(text, " \t");
        if (*start && *start != '#')
            rule_of(&rules, start);
    }
    free(text);
    fclose(opened);
    if (rules.count == 0) {
        fprintf(stderr, "nids: %s: there is no rule with a content for TCP or UDP\nhint: is it a file of rules?\n", path);
        exit(2);
    }
    return rules;
}

/* Where the content ends in the payload, if it begins at `from` at the earliest; 0 if it is not there. */
static size_t end_of(const struct content *content, const unsigned char *payload, size_t length, size_t from)
{
    if (from < content->offset)
        from = content->offset;
    if (content->depth && length > content->offset + content->depth)
        length = content->offset + content->depth;
    if (from >= length || length - from < content->length)
        return 0;
    if (!content->nocase) {
        const unsigned char *found = memmem(payload + from, length - from, content->bytes, content->length);
        return found ? (size_t)(found - payload) + content->length : 0;
    }
    for (; from + content->length <= length; from++) {
        size_t same = 0;
        while (same < content->length && tolower(payload[from + same]) == tolower(content->bytes[same]))
            same++;
        if (same == content->length)
            return from + same;
    }
    return 0;
}

bool rule_matches(const struct rule *rule, const unsigned char *payload, size_t length)
{
    size_t last = 0;
    for (size_t i = 0; i < rule->count; i++) {
        const struct content *content = &rule->contents[i];
        size_t end = end_of(content, payload, length, content->after ? last : 0);
        if ((end != 0) == content->negated)
            return false;
        if (end)
            last = end;
    }
    return true;
}
