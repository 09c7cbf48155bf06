package gemma

import (
	"reflect"
	"strings"
	"testing"

	"anemone/internal/arch"
	"anemone/internal/checkpoint"
)

// TestStates has the states that the contract shows for Gemma 4 E2B, and the
// edges of the contexts with a whole local cache.
func TestStates(t *testing.T) {
	e2b := Caches{Window: 512, KVHeads: 1, HeadDim: [2]int{256, 512}, Layers: [2][]int{{0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13}, {4, 9, 14}}}
	for _, c := range []struct {
		o             arch.Options
		dropping      bool
		shift, length int
	}{
		{arch.Options{Context: 512, Batch: 64}, false, 0, 512},
		{arch.Options{Context: 640, Batch: 64}, false, 0, 640},
		{arch.Options{Context: 641, Batch: 64}, false, 640, 640},
		{arch.Options{Context: 8192, Batch: 64}, false, 640, 640},
		{arch.Options{Context: 8192, Batch: 1}, false, 514, 514},
		{arch.Options{Context: 8192, Batch: 64, FullLocalCache: true}, false, 0, 8192},
		{arch.Options{Context: 576, Batch: 64}, true, 0, 576},
		{arch.Options{Context: 577, Batch: 64}, true, 576, 576},
	} {
		e2b.Dropping = c.dropping
		if got := e2b.LocalLength(c.o); got != c.shift {
			t.Errorf("%+v: a shifting cache of %d, want %d", c.o, got, c.shift)
		}
		want := []arch.State{
			{Name: "model_model_kv_cache_local", Shape: []int{12, 2, c.length, 256}, Layers: e2b.Layers[Sliding]},
			{Name: "model_model_kv_cache_global", Shape: []int{3, 2, c.o.Context, 512}, Layers: e2b.Layers[Full]},
		}
		if got := e2b.States(c.o); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: states %+v, want %+v", c.o, got, want)
		}
	}
}

func TestObject(t *testing.T) {
	open := func(json string) (Object, *checkpoint.Config) {
		t.Helper()
		c, err := checkpoint.ParseConfig("config.json", []byte(json))
		if err != nil {
			t.Fatal(err)
		}
		o, err := Text(c, "gemma4")
		if err != nil {
			t.Fatal(err)
		}
		return o, c
	}
	o, _ := open(`{"model_type": "gemma4", "text_config": {"layer_types": ["sliding_attention", "full_attention"], "rms_norm_eps": 2}}`)
	if o.At() != "config.json: text_config." {
		t.Errorf("errors begin with %q", o.At())
	}
	if k, err := o.LayerKinds(2, 6); err != nil || !reflect.DeepEqual(k, []Kind{Sliding, Full}) {
		t.Errorf("kinds %v, %v", k, err)
	}
	if _, err := o.NormEps(1e-6); err == nil || !strings.Contains(err.Error(), "config.json: text_config.rms_norm_eps: found 2") {
		t.Errorf("epsilon: %v", err)
	}
	o, _ = open(`{"model_type": "gemma4_text"}`)
	if k, err := o.LayerKinds(7, 3); err != nil || !reflect.DeepEqual(k, []Kind{Sliding, Sliding, Full, Sliding, Sliding, Full, Sliding}) {
		t.Errorf("kinds %v, %v", k, err)
	}
	if c, err := o.Softcap(); c != 0 || err != nil {
		t.Errorf("soft cap %g, %v", c, err)
	}

	for _, c := range []struct {
		json       string
		tied, said bool
	}{
		{`{"model_type": "gemma4", "text_config": {}}`, true, false},
		{`{"model_type": "gemma4", "text_config": {}, "tie_word_embeddings": false}`, false, true},
		{`{"model_type": "gemma4", "text_config": {"tie_word_embeddings": true}, "tie_word_embeddings": false}`, true, true},
		{`{"model_type": "gemma4", "hidden_size": 3, "tie_word_embeddings": false}`, false, true},
	} {
		o, outer := open(c.json)
		if tied, said, err := o.Tied(outer); tied != c.tied || said != c.said || err != nil {
			t.Errorf("%s: tied %t, said %t, %v", c.json, tied, said, err)
		}
	}
	bad, err := checkpoint.ParseConfig("config.json", []byte(`{"model_type": "gemma3n"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Text(bad, "gemma3"); err == nil || !strings.Contains(err.Error(), `model_type: found "gemma3n", want "gemma3" or "gemma3_text"`) {
		t.Errorf("another family: %v", err)
	}
}

// TestObjectErrors has what each helper refuses, and the error's words.
func TestObjectErrors(t *testing.T) {
	kinds := func(o Object) error { _, err := o.LayerKinds(3, 2); return err }
	eps := func(o Object) error { _, err := o.NormEps(1e-6); return err }
	softcap := func(o Object) error { _, err := o.Softcap(); return err }
	for _, c := range []struct {
		json string
		read func(Object) error
		want string // "" for no error
	}{
		{`"layer_types": ["sliding_attention", "full_attention"]`, kinds, `layer_types: found 2 entries, want num_hidden_layers, 3`},
		{`"layer_types": ["sliding_attention", "full_attention", "chunked_attention"]`, kinds, `layer_types[2]: found "chunked_attention", want "sliding_attention" or "full_attention"`},
		{`"layer_types": "sliding_attention"`, kinds, `layer_types: found the string "sliding_attention", want an array of strings`},
		{`"layer_types": null`, kinds, ""},
		{`"rms_norm_eps": 0`, eps, `rms_norm_eps: found 0, want a number between 0 and 1`},
		{`"rms_norm_eps": 1`, eps, `rms_norm_eps: found 1, want`},
		{`"rms_norm_eps": "1e-6"`, eps, `rms_norm_eps: found the string "1e-6", want a number`},
		{`"rms_norm_eps": 1e-5`, eps, ""},
		{`"final_logit_softcapping": 0`, softcap, `final_logit_softcapping: found 0, want a number from 0.001 to 10000, or null`},
		{`"final_logit_softcapping": -30`, softcap, `final_logit_softcapping: found -30, want`},
		{`"final_logit_softcapping": 1e5`, softcap, `final_logit_softcapping: found 100000, want`},
		{`"final_logit_softcapping": null`, softcap, ""},
		{`"final_logit_softcapping": 30.0`, softcap, ""},
		{`"hidden_activation": "silu"`, Object.Activation, `hidden_activation: found "silu", want "gelu_pytorch_tanh"`},
		{`"hidden_activation": "gelu_pytorch_tanh"`, Object.Activation, ""},
		{`"hidden_activation": null`, Object.Activation, ""},
	} {
		outer, err := checkpoint.ParseConfig("config.json", []byte(`{"model_type": "gemma3", "text_config": {`+c.json+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		o, err := Text(outer, "gemma3")
		if err != nil {
			t.Fatal(err)
		}
		switch err := c.read(o); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.json, err)
		case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "config.json: text_config."+c.want)):
			t.Errorf("%s: %v, want %s", c.json, err, c.want)
		}
	}
}

func TestKindNames(t *testing.T) {
	if s := Sliding.String() + " " + Sliding.LayerType() + " " + Full.String() + " " + Full.LayerType(); s != "sliding sliding_attention full full_attention" {
		t.Error(s)
	}
}
