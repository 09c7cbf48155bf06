package llamacpp

import (
	"fmt"
	"math"

	"anemone/internal/checkpoint/gguf"
)

// rope returns the settings of the rotary embeddings: base frequency and
// linear scaling. def is the base of a file that does not say.
func (r *reader) rope(def float64) object {
	o := object{"rope_type": "default", "rope_theta": r.floatOr(r.arch+"rope.freq_base", def)}
	key := r.arch + "rope.scaling.type"
	// To llama.cpp, a factor without a type is linear. The second name is that
	// of old files.
	kind := r.textOr(key, "linear")
	factor := r.floatOr(r.arch+"rope.scaling.factor", r.floatOr(r.arch+"rope.scale_linear", 1))
	switch kind {
	case "none":
	case "linear":
		if factor != 1 {
			o["rope_type"], o["factor"] = "linear", factor
		}
	default:
		r.bad(key, fmt.Sprintf("%.100q", kind), `"linear" or "none": others are not supported`)
	}
	for _, name := range []string{"rope_factors_long.weight", "rope_factors_short.weight"} {
		if _, ok := r.f.Lookup(name); ok {
			r.fail(fmt.Errorf("%s: tensor %q: rotary embeddings of type longrope are not supported", r.f.Path(), name))
		}
	}
	return o
}

// llama3 lists the parameters of rope type llama3 that models have: Llama 3.1
// and 3.3, and Llama 3.2. All have low_freq_factor 1, high_freq_factor 4 and
// original_max_position_embeddings 8192.
var llama3 = []float64{8, 32}

const (
	llama3Low, llama3High = 1, 4
	llama3Original        = 8192
)

// factorTolerance is how far a factor may be from what the parameters give,
// relatively: converters compute in float32, where a wavelength has an error
// of some 1e-6, and the two sets of parameters differ by more than a tenth
// wherever they do not agree.
const factorTolerance = 1e-4

// ropeFactors makes rope type llama3 of the factors in the file, if there are
// any other than 1.
func (r *reader) ropeFactors(rope object, dim int) {
	const name = "rope_freqs.weight"
	info, ok := r.f.Lookup(name)
	if !ok || r.err != nil {
		return
	}
	if info.Type != gguf.F32 || len(info.Shape) != 1 || info.Shape[0] != dim/2 {
		r.fail(fmt.Errorf("%s: tensor %q: found %s %v, want F32 [%d]", r.f.Path(), name, info.Type, info.Shape, dim/2))
		return
	}
	src, err := r.f.Bytes(name)
	if err != nil {
		r.fail(err)
		return
	}
	factors := make([]float32, dim/2)
	info.Type.Dequantize(factors, src)
	theta := rope["rope_theta"].(float64)
	for _, factor := range append([]float64{1}, llama3...) {
		if !fits(factors, theta, factor) {
			continue
		}
		if factor == 1 {
			return
		}
		if rope["rope_type"] != "default" {
			r.fail(fmt.Errorf("%s: tensor %q: factors of rotary frequencies together with rope.scaling are not supported", r.f.Path(), name))
		}
		rope["rope_type"], rope["factor"] = "llama3", factor
		rope["low_freq_factor"], rope["high_freq_factor"] = float64(llama3Low), float64(llama3High)
		rope["original_max_position_embeddings"] = llama3Original
		return
	}
	r.fail(fmt.Errorf("%s: tensor %q: factors from %g to %g, want those of Llama 3.1 or 3.2 (rope type llama3, factor 8 or 32, low 1, high 4, original context 8192): which parameters give others cannot be told; convert from the original checkpoint",
		r.f.Path(), name, factors[0], factors[len(factors)-1]))
}

// fits reports whether the factors are those that rope type llama3 has.
func fits(factors []float32, theta, factor float64) bool {
	for i, f := range factors {
		wavelength := 2 * math.Pi * math.Pow(theta, float64(2*i)/float64(2*len(factors)))
		want := factor
		switch {
		case wavelength < llama3Original/llama3High:
			want = 1
		case wavelength <= llama3Original/llama3Low:
			smooth := (llama3Original/wavelength - llama3Low) / (llama3High - llama3Low)
			want = 1 / ((1-smooth)/factor + smooth)
		}
		if !(math.Abs(float64(f)-want) <= factorTolerance*want) {
			return false
		}
	}
	return true
}
