package compress

import (
	"strings"
	"testing"
)

func TestParseEncoding(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Encoding
		str  string
	}{
		{"none", Encoding{}, "none"},
		{" none ", Encoding{}, "none"},
		{"4", Encoding{4, 8}, "4,8"},
		{"6,8", Encoding{6, 8}, "6,8"},
		{"1,1", Encoding{1, 1}, "1,1"},
		{"2,16", Encoding{2, 16}, "2,16"},
		{"3, 32", Encoding{3, 32}, "3,32"},
		{"8,0", Encoding{8, 0}, "8,0"},
		{"4,tensor", Encoding{4, 0}, "4,0"},
		{"4,t", Encoding{4, 0}, "4,0"},
		{"04,008", Encoding{4, 8}, "4,8"},
		{"4,999999999", Encoding{4, 999999999}, "4,999999999"},
	} {
		got, err := ParseEncoding(c.in)
		if err != nil || got != c.want || got.String() != c.str {
			t.Errorf("ParseEncoding(%q) = %v (%q), %v; want %v (%q)", c.in, got, got.String(), err, c.want, c.str)
		}
	}
	for in, wants := range map[string]string{
		"":             "number missing",
		"None":         `"None" is not a number`,
		"fp16":         `"fp16" is not a number`,
		"0":            "0 bits are not a width",
		"5":            "5 bits are not a width",
		"16,8":         "16 bits are not a width",
		"-4":           `"-4" is not a number`,
		"4,":           "group: number missing",
		",8":           "bits: number missing",
		"4,-1":         `group: "-1" is not a number`,
		"4,8,8":        `group: "8,8" is not a number`,
		"4,1000000000": `"1000000000" is not a number`,
		"4,all":        `"all" is not a number`,
		"none,8":       `"none" is not a number`,
		"٤":            "is not a number",
	} {
		e, err := ParseEncoding(in)
		if err == nil || !strings.Contains(err.Error(), wants) || !strings.Contains(err.Error(), "such as 4,8") {
			t.Errorf("ParseEncoding(%q) = %v, error %v; want one with %q", in, e, err, wants)
		}
	}
}

func FuzzParseEncoding(f *testing.F) {
	for _, s := range []string{"none", "4", "4,8", "6,0", "8,tensor", " 3 , 16 ", "5,8", "4,,", "-1", "4,99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEncoding(s)
		if err != nil {
			if e != (Encoding{}) {
				t.Errorf("ParseEncoding(%q) = %v with error %v", s, e, err)
			}
			return
		}
		if _, ok := e.indexType(); !ok && e.Bits != 0 || e.Group < 0 {
			t.Errorf("ParseEncoding(%q) = %#v", s, e)
		}
		if again, err := ParseEncoding(e.String()); err != nil || again != e {
			t.Errorf("ParseEncoding(%q) = %v, but its string gives %v, %v", s, e, again, err)
		}
	})
}

func TestFitGroup(t *testing.T) {
	for _, c := range []struct{ rows, asked, want int }{
		{1024, 8, 8},
		{1024, 0, 1024},
		{1024, -1, 1024},
		{8, 8, 8},
		{4, 8, 4},     // one table
		{1, 8, 1},     // one row
		{120, 16, 15}, // coremltools PR 2777: 120 channels in groups of 16
		{12, 8, 6},
		{20, 8, 5},
		{36, 8, 6},
		{28, 8, 7},
		{21, 8, 7},
		{22, 8, 11},    // below is 2, less than half of 8; above is 11
		{26, 8, 13},    // 2, 13
		{34, 8, 17},    // 2, 17
		{62, 8, 31},    // 2, 31
		{74, 8, 2},     // 2, 37: too large
		{9496, 8, 8},   // 151936/16 rows
		{25, 8, 5},     // 5 is more than half
		{49, 8, 7},     //
		{11, 8, 11},    // 1, 11
		{31, 8, 31},    // 1, 31
		{32, 5, 4},     //
		{37, 8, 1},     // prime, and too large
		{15193, 8, 1},  // prime
		{151669, 8, 7}, // a vocabulary, 7*47*461
		{18992, 3, 2},
		{35, 3, 5}, // below 1, half of 3 is 1.5
		{64, 1, 1},
		{100, 3, 2},
		{7, 1 << 62, 7},
	} {
		if got := FitGroup(c.rows, c.asked); got != c.want {
			t.Errorf("FitGroup(%d, %d) = %d, want %d", c.rows, c.asked, got, c.want)
		}
	}
	// The rule again, word by word.
	for rows := 1; rows <= 300; rows++ {
		for asked := 1; asked <= 40; asked++ {
			below, above := 0, 0
			for d := 1; d <= rows; d++ {
				if rows%d == 0 && d <= asked {
					below = d
				}
				if rows%d == 0 && d > asked && above == 0 {
					above = d
				}
			}
			want := below
			if 2*below < asked && above != 0 && above <= 4*asked {
				want = above
			}
			if got := FitGroup(rows, asked); asked < rows && got != want {
				t.Errorf("FitGroup(%d, %d) = %d, want %d", rows, asked, got, want)
			}
		}
	}
}
