// Package arch is the registry of model architectures. An architecture
// knows three things about its checkpoints: the configuration, the graph
// that goes into a package, and the float32 reference that the package is
// held to. Graph and reference share the configuration and the weights and
// nothing else, so that comparing them means something.
package arch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"anemone/internal/checkpoint"
	"anemone/mil"
)

// Options say how a checkpoint is laid out as a package.
type Options struct {
	Context   int // positions of the cache, C
	Batch     int // tokens of a prefill call, B
	SplitHead int // logits outputs of the head
	// FullLocalCache keeps every position in the caches of layers that attend
	// to a window only, however long the context is.
	FullLocalCache bool
	// GDNChunk is the number of tokens that the prefill function of a Gated
	// DeltaNet takes at a time, a divisor of the batch; 0 leaves it to the
	// architecture.
	GDNChunk int
	// Remainders are the numbers of tokens of further functions for what a
	// prompt leaves behind its last whole batch: divisors of Batch, less than
	// it and more than 1.
	Remainders []int
}

// Info is what a package says about its model.
type Info struct {
	Architecture string // of meta.yaml, such as "qwen3"
	Prefix       string // default prefix of the file names, such as "qwen"
	// TokenizerClass is the class that ANEMLL's runtimes look for in
	// config.json.
	TokenizerClass string
	Hidden         int
	Layers         int
	Vocab          int
	MaxContext     int // positions that the model was made for
}

// Model is a checkpoint whose configuration and tensors have been checked.
type Model interface {
	Info() Info
	// Embeddings returns the function of the embeddings model: input_ids
	// [1, ?] to hidden_states [1, ?, H].
	Embeddings(o Options) (*mil.Function, error)
	// Chunk returns the functions of the decoder layers from first up to but
	// not including last: "infer" for one token, "prefill" for a batch, and one
	// for each of the Remainders, named by [RemainderFunction]. They share
	// weights and have the same states. See [BuildChunk].
	Chunk(o Options, first, last int) ([]*mil.Function, error)
	// Head returns the function of the LM head: hidden_states [1, 1, H] to
	// logits1 ... logitsN.
	Head(o Options) (*mil.Function, error)
	// Reference returns the float32 computation of the same checkpoint.
	Reference() (Reference, error)
}

// Extended is a Model whose packages say more in meta.yaml than those of
// plain transformers.
type Extended interface {
	Model
	Extension(o Options) Extension
}

// Scaled is a Model whose packages carry the residual stream at another scale
// than the reference does, where it would leave fp16.
type Scaled interface {
	Model
	// StreamScale is what hidden states between the models of a package, but
	// not those behind the final norm, are of the reference's.
	StreamScale() float64
}

// Partial is a Model of which the checkpoint holds more than goes into a
// package.
type Partial interface {
	Model
	// Aside returns what a tensor that was not used belongs to, such as "the
	// vision tower" or "keys and values of layers that share another's"; ""
	// for tensors that nobody knows.
	Aside(tensor string) string
}

// RemainderFunction is the name of the function of a decoder chunk that takes
// n tokens.
func RemainderFunction(n int) string { return fmt.Sprintf("prefill_%d", n) }

// BuildChunk returns what Model.Chunk does, for a model of a number of layers,
// from what builds a function of a number of tokens.
func BuildChunk(o Options, layers, first, last int, build func(name string, tokens int) (*mil.Function, error)) ([]*mil.Function, error) {
	if first < 0 || last > layers || first >= last {
		return nil, fmt.Errorf("no layers %d to %d in a model of %d", first, last, layers)
	}
	names, tokens := []string{"infer", "prefill"}, []int{1, o.Batch}
	for _, n := range o.Remainders {
		if n < 2 || n >= o.Batch || o.Batch%n != 0 {
			return nil, fmt.Errorf("a function for %d tokens: want a divisor of the batch, %d, from 2 on", n, o.Batch)
		}
		names, tokens = append(names, RemainderFunction(n)), append(tokens, n)
	}
	fs := make([]*mil.Function, len(names))
	for i, name := range names {
		f, err := build(name, tokens[i])
		if err != nil {
			return nil, err
		}
		fs[i] = f
	}
	return fs, nil
}

// Extension is what a package of an extended architecture says about itself,
// in the terms of the contract. The zero value of a field is not written.
type Extension struct {
	// RecurrentState says that states cannot be rewound: every token is fed
	// exactly once.
	RecurrentState bool
	// PrefillFullBatchesOnly forbids padding in a prefill call.
	PrefillFullBatchesOnly bool
	GDNChunkSize           int // tokens of a chunk of the delta rule
	MoE                    *MoE

	LocalAttentionWindow int // positions that sliding layers attend to
	// LocalCacheLength is the length of a local cache that is a block-shifting
	// window, 0 for caches of the whole context.
	LocalCacheLength  int
	FinalLogitSoftcap float64
	PerLayerInputs    int         // width of the per_layer_inputs tensor
	KVSharedLayers    map[int]int // layer to the layer whose keys and values it reads

	LayerTypes []string // "linear", "full" or "sliding", for each layer
	States     []State
}

// MoE describes the experts of a mixture model.
type MoE struct {
	Experts         int
	ExpertsPerToken int
	Evaluation      string // "dense"
	// Parameters is the number of weights of all experts of all layers, not
	// counting those that all tokens take.
	Parameters int64
}

// Names of the contract's states.
const (
	StateKV     = "model_model_kv_cache_0"      // keys and values; of recurrent models, those of their full layers
	StateGDN    = "model_model_gdn_state_0"     // memories of Gated DeltaNets
	StateConv   = "model_model_conv_state_0"    // latest inputs of their convolutions
	StateLocal  = "model_model_kv_cache_local"  // keys and values of sliding layers
	StateGlobal = "model_model_kv_cache_global" // keys and values of full layers beside those
)

// State describes one state of the decoder chunks, of fp16, and the layers
// that own slices of it, in the order of the slices.
type State struct {
	Name   string
	Shape  []int
	Layers []int
}

// Architecture makes models of the checkpoints with certain model types.
type Architecture struct {
	// ModelTypes are the values of model_type in config.json.
	ModelTypes []string
	// Open checks configuration and tensors before any work is done.
	Open func(*checkpoint.Checkpoint) (Model, error)
}

// ErrUnsupported is wrapped by errors about checkpoints of an architecture
// that is not in the registry. It matches [errors.ErrUnsupported].
var ErrUnsupported error = unsupported{}

type unsupported struct{}

func (unsupported) Error() string { return "architecture is not supported" }

func (unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

// Registry is a list of architectures.
type Registry []Architecture

// Open returns the model in a checkpoint, which must not hold parts of another
// one; see [checkpoint.Checkpoint.CheckUsed].
func (r Registry) Open(ck *checkpoint.Checkpoint) (Model, error) {
	if err := ck.Config.CheckSupported(); err != nil {
		return nil, err
	}
	t := ck.Config.ModelType()
	var known []string
	for _, a := range r {
		if slices.Contains(a.ModelTypes, t) {
			m, err := a.Open(ck)
			if err == nil {
				err = ck.CheckUsed()
			}
			if err != nil {
				return nil, err
			}
			return m, nil
		}
		known = append(known, a.ModelTypes...)
	}
	if t == "" {
		return nil, fmt.Errorf("%s: model_type is missing (supported: %s): %w", ck.Config.File(), strings.Join(known, ", "), ErrUnsupported)
	}
	return nil, fmt.Errorf("%s: model_type is %q (supported: %s): %w", ck.Config.File(), t, strings.Join(known, ", "), ErrUnsupported)
}

// FindHead returns the tensor of the LM head: embed itself if the two are tied,
// which a configuration may leave unsaid; then the checkpoint decides by whether
// it has a tensor of that name. One beside a tied embedding is not used.
func FindHead(ck *checkpoint.Checkpoint, name string, embed *checkpoint.Tensor, tied, said bool) (*checkpoint.Tensor, error) {
	has := ck.Has(name)
	switch {
	case said && tied || !said && !has:
		return embed, nil
	case !has:
		return nil, fmt.Errorf("%s: tie_word_embeddings is false, but the checkpoint has no %s; if the head is the embedding, set it to true", ck.Config.File(), name)
	}
	return ck.Tensor(name, embed.Shape...)
}

// SplitLayers returns the bounds of n consecutive ranges of layers: range i
// is [b[i], b[i+1]). The first ranges get the extra layers, as ANEMLL has it.
func SplitLayers(layers, n int) []int { return bounds(layers, n) }

// SplitVocab returns the widths of the n parts of the head. The first
// vocab % n parts are one wider.
func SplitVocab(vocab, n int) []int {
	b := bounds(vocab, n)
	w := make([]int, n)
	for i := range w {
		w[i] = b[i+1] - b[i]
	}
	return w
}

func bounds(total, n int) []int {
	b := make([]int, n+1)
	for i := range n {
		b[i+1] = b[i] + total/n
		if i < total%n {
			b[i+1]++
		}
	}
	return b
}
