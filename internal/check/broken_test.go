package check

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"anemone/internal/checkpoint/safetensors"
)

// damaged copies the tiny checkpoint, changed: edit gets every tensor's name
// and bytes (bf16), config the text of config.json.
func damaged(t testing.TB, edit func(tensors map[string]*safetensors.Named), config func(string) string) string {
	t.Helper()
	src := tinyCheckpoint(t)
	dir := filepath.Join(t.TempDir(), "tiny-qwen3")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".safetensors" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(src, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() == "config.json" && config != nil {
			was := string(b)
			if b = []byte(config(was)); string(b) == was {
				t.Fatal("config.json is unchanged")
			}
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(filepath.Join(src, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(src, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]*safetensors.Named{}
	for _, info := range f.Tensors() {
		b := append([]byte(nil), file[info.Offset:][:info.Size]...)
		all[info.Name] = &safetensors.Named{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: b}
	}
	if edit != nil {
		edit(all)
	}
	for _, info := range f.Tensors() {
		copy(file[info.Offset:][:info.Size], all[info.Name].Data)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), file, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// scramble puts the elements of a bf16 tensor in another order.
func scramble(b []byte) {
	rng := rand.New(rand.NewPCG(3, 4))
	rng.Shuffle(len(b)/2, func(i, j int) {
		b[2*i], b[2*j] = b[2*j], b[2*i]
		b[2*i+1], b[2*j+1] = b[2*j+1], b[2*i+1]
	})
}

func scale(b []byte, s float32) {
	for i := 0; i+1 < len(b); i += 2 {
		v := math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[i:])) << 16)
		binary.LittleEndian.PutUint16(b[i:], uint16(math.Float32bits(v*s)>>16))
	}
}

// damages lists ways to make a wrong package.
var damages = func() []damage {
	tensor := func(name string, f func([]byte)) func(map[string]*safetensors.Named) {
		return func(all map[string]*safetensors.Named) { f(all[name].Data) }
	}
	config := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	var ds []damage
	for l := range 4 {
		for _, part := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"} {
			name := fmt.Sprintf("model.layers.%d.%s.weight", l, part)
			ds = append(ds, damage{"scrambled " + name, l, tensor(name, scramble), nil, l == 0})
			ds = append(ds, damage{"zeroed " + name, l, tensor(name, func(b []byte) { clear(b) }), nil, l == 0})
		}
		for _, part := range []string{"input_layernorm", "post_attention_layernorm", "self_attn.q_norm"} {
			name := fmt.Sprintf("model.layers.%d.%s.weight", l, part)
			ds = append(ds, damage{"doubled " + name, l, tensor(name, func(b []byte) { scale(b, 2) }), nil, false})
		}
	}
	ds = append(ds,
		damage{"swapped layers 1 and 2", -1, func(all map[string]*safetensors.Named) {
			for n, a := range all {
				if rest, ok := strings.CutPrefix(n, "model.layers.1."); ok {
					b := all["model.layers.2."+rest]
					a.Data, b.Data = b.Data, a.Data
				}
			}
		}, nil, false},
		damage{"swapped gate and up", -1, func(all map[string]*safetensors.Named) {
			a, b := all["model.layers.0.mlp.gate_proj.weight"], all["model.layers.0.mlp.up_proj.weight"]
			a.Data, b.Data = b.Data, a.Data
		}, nil, true},
		damage{"rope theta 1e4", -1, nil, config("1000000.0", "10000.0"), false},
		damage{"rope theta 5e5", -1, nil, config("1000000.0", "500000.0"), false},
		damage{"eps 1e-2", -1, nil, config("1e-06", "1e-02"), false},
	)
	return ds
}()

type damage struct {
	name   string
	layer  int // of the tensor; -1: it is no tensor of one
	edit   func(map[string]*safetensors.Named)
	config func(string) string
	coarse bool // to be seen with 4 bits, too
}
