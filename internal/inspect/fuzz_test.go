package inspect

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

// FuzzShorten cuts any text: what has no list passes unchanged, and nothing
// grows.
func FuzzShorten(f *testing.F) {
	for _, s := range []string{`val = tensor<int32, [3]>([0, 1, 2])`, "([" + strings.Repeat("1, ", 100) + "1])", `(["a\"]", "([" ])`, "([[", "]", `("\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		s := &shortener{w: w}
		s.Write([]byte(in))
		w.Flush()
		out := b.String()
		if !strings.Contains(in, "([") && out != in {
			t.Errorf("%q became %q", in, out)
		}
		if len(out) > len(in)+20*strings.Count(in, "([") {
			t.Errorf("%d bytes became %d", len(in), len(out))
		}
	})
}

// FuzzPath splits any name: the parts are not many, and the last is the rest.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"model_layers_3_self_attn_q_proj_weight", "layers_0_mlp_mlp_mlp_mlp_x", "", "h_1_"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p := path(name)
		if len(p) == 0 || len(p) > 2+maxGroups+1 || !strings.HasSuffix(strings.TrimSuffix(name, "_palettized"), p[len(p)-1]) {
			t.Errorf("%q is %q", name, p)
		}
	})
}
