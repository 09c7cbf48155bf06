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
