package gemma

import (
	"anemone/internal/arch"
	"anemone/internal/arch/nn"
	"anemone/mil"
)

// Kind is a kind of attention.
type Kind uint8

// Kinds of layers.
const (
	Sliding Kind = iota // attends to a window
	Full                // attends to the whole context
)

// kinds lists both, in the order of their states.
var kinds = [...]Kind{Sliding, Full}

// String returns the name that meta.yaml uses.
func (k Kind) String() string { return [...]string{"sliding", "full"}[k] }

// LayerType is the name that config.json uses.
func (k Kind) LayerType() string { return k.String() + "_attention" }

// Caches says where the layers of a model keep keys and values: a state for
// each kind of layers, with a slot for each layer that stores some.
type Caches struct {
	Window  int // positions that sliding layers attend to, their own included
	KVHeads int
	HeadDim [2]int   // of each kind
	Layers  [2][]int // of each kind, the layers that store, in order

	// Dropping makes the caches of the first version of the layout; see
	// [window]. Only tests do.
	Dropping bool
}

// States returns the states as meta.yaml lists them. Keys and values stand
// side by side: [slots, 2*KVHeads, positions, HeadDim].
func (c *Caches) States(o arch.Options) []arch.State {
	state := func(k Kind, name string, positions int) arch.State {
		return arch.State{Name: name, Shape: []int{len(c.Layers[k]), 2 * c.KVHeads, positions, c.HeadDim[k]}, Layers: c.Layers[k]}
	}
	return []arch.State{state(Sliding, arch.StateLocal, c.window(o).length), state(Full, arch.StateGlobal, o.Context)}
}

// LocalLength returns the length of a local cache that shifts, 0 if it holds
// the whole context.
func (c *Caches) LocalLength(o arch.Options) int {
	if w := c.window(o); w.kind != whole {
		return w.length
	}
	return 0
}

// Call is what a function of a chunk is called with besides the tokens.
type Call struct {
	Tokens    int        // T
	Positions *mil.Value // of the tokens, int32 [T]
	Causal    *mil.Value // mask of the whole context, [1, 1, T, C]
	Current   *mil.Value // position of the first token, int32 [1]
}

// NewCall declares these inputs, for a call of t tokens.
func NewCall(b *mil.Builder, o arch.Options, t int) Call {
	return Call{
		Tokens:    t,
		Positions: b.Input("position_ids", mil.TensorOf(mil.Int32, t)),
		Causal:    b.Input("causal_mask", mil.TensorOf(mil.Float16, 1, 1, t, o.Context)),
		Current:   b.Input("current_pos", mil.TensorOf(mil.Int32, 1)),
	}
}

// View is what the layers of one kind see within a function.
type View struct {
	b        *mil.Builder
	cos, sin *mil.Value // of the call's positions [1, 1, T, HeadDim]
	mask     *mil.Value // [1, 1, T, length of the cache]
	cache    *nn.Cache
	slots    map[int]int // layer that stores keys and values to its slot
	kvHeads  int
}

// Open declares the states, the function's last inputs, and makes those of
// the layers [first, last) ready, whose kinds are given. A kind that none of
// them has gets no view, and its state is read for nothing, of which x
// [1, T, H] comes back.
func (c *Caches) Open(b *mil.Builder, o arch.Options, x *mil.Value, call Call, layers []Kind, first, last int, rot [2]*Rotation) (*mil.Value, [2]*View) {
	var states [2]*mil.Value
	for i, s := range c.States(o) {
		states[i] = b.Input(s.Name, mil.StateOf(mil.Float16, s.Shape...))
	}
	var views [2]*View
	for _, k := range kinds {
		used := false
		for i := first; i < last; i++ {
			used = used || layers[i] == k
		}
		if !used {
			x = nn.Touch(b, x, states[k])
			continue
		}
		v := &View{b: b, slots: map[int]int{}, kvHeads: c.KVHeads}
		from, to := 0, 0 // the slots of [first, last)
		for slot, i := range c.Layers[k] {
			v.slots[i] = slot
			if i < first {
				from++
			}
			if i < last {
				to++
			}
		}
		v.cos, v.sin = rot[k].at(b, call.Positions)
		if k == Full {
			v.mask, v.cache = call.Causal, nn.NewCache(b, states[k], call.Current, call.Tokens)
		} else {
			v.mask, v.cache = c.window(o).open(b, states[k], from, to, call.Positions, call.Current, call.Causal, call.Tokens)
		}
		views[k] = v
	}
	return x, views
}

// Rotate turns heads [1, heads, T, HeadDim] to the positions of the call.
func (v *View) Rotate(x *mil.Value) *mil.Value { return nn.Rotary(v.b, x, v.cos, v.sin) }

// Store keeps the keys and values [1, KVHeads, T, HeadDim] of a layer, with
// one update for both.
func (v *View) Store(layer int, keys, values *mil.Value) {
	v.cache.Write(v.slots[layer], nn.Concat(v.b, 1, keys, values))
}

// Attend returns what queries [1, heads, T, HeadDim] find among the keys and
// values that a layer has stored. Scores are not scaled: the queries are.
func (v *View) Attend(layer int, q *mil.Value) *mil.Value {
	kv := v.cache.Read(v.slots[layer])
	return nn.Attention(v.b, q, nn.Slice(v.b, kv, 1, 0, v.kvHeads), nn.Slice(v.b, kv, 1, v.kvHeads, 2*v.kvHeads), v.mask, 1)
}
