package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"anemone/internal/anemll"
	"anemone/internal/arch"
	"anemone/internal/arch/dense"
	"anemone/internal/session"
)

// Options are choices of a comparison. The zero value compares what the
// target suggests and holds it to the default limits of the package's
// encoding.
type Options struct {
	// Tokens is how many tokens a reference writes behind a prompt, or how
	// many of a given sequence are compared; 0 leaves it to the target.
	Tokens int
	// Layers compares the residual stream behind every layer as well. It needs a
	// reference, and Load.
	Layers bool
	// Load loads changed copies of the package's models for Layers: those that
	// also give the stream. Without it, only what leaves the parts is compared.
	Load session.Loader
	// Limits is what the figures are held to; nil means DefaultLimits.
	Limits *Limits
	// Progress, if not nil, is called now and then.
	Progress func(Progress)
}

// Progress says how far a comparison is.
type Progress struct {
	// Done is how many tokens the reference and the package have worked
	// through, on average, of Total.
	Done, Total int
	// Layer is the last layer that the reference finished for the tokens in
	// work, of Layers; both are 0 if there is none.
	Layer, Layers int
	Elapsed       time.Duration
	Left          time.Duration // estimate; 0 until it can be told
}

// Report is the outcome of a comparison.
type Report struct {
	Target string `json:"target"`
	Passed bool   `json:"passed"`
	// Failures says what was below its limit, one sentence each.
	Failures []string `json:"failures"`
	// Notes says what a reader should know about the comparison.
	Notes []string `json:"notes"`

	Tokens       int     `json:"tokens"` // of the whole sequence
	PromptTokens int     `json:"prompt_tokens"`
	Context      int     `json:"context"`
	Batch        int     `json:"batch"` // 0 without prefill
	Bits         int     `json:"bits"`  // of the narrowest weights; see WeightBits
	Limits       Limits  `json:"limits"`
	Seconds      float64 `json:"seconds"`

	// Contract is the contract's call sequence (prefill and infer) against
	// the target, at the positions where it gives logits; nil if there are
	// none.
	Contract *Figures `json:"contract"`
	// Infer is infer only against the target.
	Infer *Figures `json:"infer"`
	// Generated is the part of Infer behind the prompt.
	Generated *Figures `json:"generated,omitempty"`
	// Prefill is the contract sequence against infer only, both of the
	// package.
	Prefill *Figures `json:"prefill_against_infer"`
	// Anemll is ANEMLL's own call sequence against infer only, both of the
	// package, over the last positions: what its runtimes make of caches that
	// are rotated. nil if no cache is, or the sequence does not reach behind
	// the window. It is not held to limits, as nothing here runs that way.
	Anemll *Figures `json:"anemll_sequence_against_infer,omitempty"`

	// Layers compares what leaves each part with the reference.
	Layers []LayerFigures `json:"layers,omitempty"`
	// States compares the states after the last token with a golden's.
	States []StateFigures `json:"states,omitempty"`

	// Sequence is what was compared.
	Sequence []int32 `json:"sequence"`
}

// LayerFigures compares the residual stream behind a layer with the
// reference's.
type LayerFigures struct {
	Part string `json:"part"` // that has the layer
	// Layer counts from 0; -1 stands for what the embeddings give. The last
	// layer is there twice if its part shows both: as it is, and behind the
	// final norm.
	Layer     int            `json:"layer"`
	FinalNorm bool           `json:"final_norm"`
	Infer     *HiddenFigures `json:"infer"`
	Prefill   *HiddenFigures `json:"prefill"` // nil if prefill does not give the state
}

// HiddenFigures sums up how hidden states compare with the reference's.
type HiddenFigures struct {
	Positions int     `json:"positions"`
	NonFinite int     `json:"non_finite"`
	Cosine    Spread  `json:"cosine"`
	MaxDiff   float64 `json:"max_abs_diff"` // largest of any element
	// Relative is |difference| / |reference|, as norms of a token's state.
	Relative Spread `json:"relative_error"`
	// Added is the same of what has been added to the residual stream since the
	// place before: nil in front of the first layer and behind the final norm.
	Added *Spread `json:"added_relative_error,omitempty"`
}

// StateFigures compares a state with a golden's.
type StateFigures struct {
	Name     string  `json:"name"`
	Cosine   float64 `json:"cosine"`
	MaxDiff  float64 `json:"max_abs_diff"`
	Relative float64 `json:"relative_error"`
}

// Run holds a package to a target. An error means that the comparison could
// not be made; a package that is not good enough is a report that has not
// Passed.
func Run(ctx context.Context, m *session.Model, t Target, o Options) (*Report, error) {
	start := time.Now()
	p := m.Package()
	l := limits{context: p.ContextLength, batch: p.BatchSize, vocab: p.VocabSize, hidden: p.HiddenSize, layers: p.Meta.NumLayers, tokens: o.Tokens}
	if p.Argmax {
		l.parts = len(p.LogitsWidths)
	}
	if o.Tokens < 0 {
		return nil, fmt.Errorf("%d tokens asked for", o.Tokens)
	}
	seq, err := t.plan(l)
	if err != nil {
		return nil, err
	}
	w := &walker{ctx: ctx, pkg: p, total: seq.total, prompt: seq.prompt, progress: o.Progress, start: start}
	for _, c := range []*Collector{&w.contract, &w.infer, &w.generated, &w.prefill, &w.anemll} {
		c.argmax = p.Argmax
	}
	if p.Window > 0 && seq.total > p.Window+1 {
		w.tailFrom = max(p.Window, seq.total-anemllTail)
	}
	if o.Layers {
		if w.layers, err = w.watchLayers(t, o.Load); err != nil {
			return nil, err
		}
		defer w.layers.close()
		if w.layers.model != nil {
			m = w.layers.model
		}
	}
	if err := w.lanes(m); err != nil {
		return nil, err
	}
	if err := t.walk(ctx, seq, w); err != nil {
		return nil, err
	}
	if err := w.finish(); err != nil {
		return nil, err
	}
	if err := w.anemllSequence(m); err != nil {
		return nil, err
	}
	if _, itself := t.(Tokens); itself && w.batches == 0 {
		if w.batch == nil {
			return nil, fmt.Errorf("there is no prefill to hold to infer: %s", p.NoPrefill)
		}
		return nil, fmt.Errorf("of %d tokens none went through prefill, which takes %d at a time: there is nothing to hold to infer", w.n, p.BatchSize)
	}

	r := &Report{
		Target: t.Describe(), Tokens: w.n, PromptTokens: seq.prompt, Context: p.ContextLength, Batch: p.BatchSize, Bits: WeightBits(p),
		Contract: w.contract.Figures(), Infer: w.infer.Figures(), Generated: w.generated.Figures(), Prefill: w.prefill.Figures(), Anemll: w.anemll.Figures(),
		Layers: w.layerFigures(), Notes: slices.Clone(seq.notes), Failures: []string{}, Sequence: w.sequence,
	}
	if g, ok := t.(*Golden); ok {
		if r.States, err = w.compareStates(g, r); err != nil {
			return nil, err
		}
	}
	w.notes(r)
	if w.layers != nil {
		r.Notes = append(r.Notes, w.layers.notes...)
	}
	if r.Notes == nil {
		r.Notes = []string{}
	}
	r.Limits = DefaultLimits(r.Bits)
	if o.Limits != nil {
		r.Limits = *o.Limits
	}
	r.judge()
	if src := sourceOf(t); src != nil && r.unlike() {
		r.Notes = append(r.Notes, fmt.Sprintf("hardly anything agrees: the package was probably made of another checkpoint than %s", src.Name))
	} else if r.narrow() {
		r.Notes = append(r.Notes, "the tables may cost that much, above all in a small model: with more bits or smaller groups (--lut-ffn 8, or 6,4) a package loses less, without tables (none) next to nothing; if that fails too, it is not the tables")
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// narrow reports whether the package failed in nothing but what tables cost.
func (r *Report) narrow() bool {
	sound := func(f *Figures, lowest float64) bool { return f == nil || f.NonFinite == 0 && f.Cosine.Min >= lowest }
	return !r.Passed && r.Bits < 16 && r.Infer != nil && sound(r.Contract, -1) && sound(r.Infer, -1) && sound(r.Prefill, r.Limits.MinPrefill)
}

// unlike reports whether the package looks like one of other weights altogether
// rather than like one with something broken.
func (r *Report) unlike() bool {
	f := r.Infer
	if r.Passed || f == nil || f.NonFinite > 0 || r.Bits < 3 {
		return false
	}
	if len(r.Layers) > 0 && r.Layers[0].Layer < 0 && r.Layers[0].Infer.Cosine.Mean > 0.9 {
		return false // the embeddings are the checkpoint's
	}
	return f.Cosine.Mean < 0.5 && f.Top1 < 0.1
}

func (w *walker) notes(r *Report) {
	if w.pkg.Argmax {
		r.Notes = append(r.Notes, fmt.Sprintf("the package gives the best token of each of %d parts of the vocabulary and its logit (argmax_in_model): the figures are over these logits, top-1 is the best of all tokens", len(w.pkg.LogitsWidths)))
	}
	if w.anemllErr != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("caches are rotated from position %d on: ANEMLL's own call sequence (batches there, too, and the last token of the prompt twice) fails: %v", w.pkg.Window, w.anemllErr))
	}
	if f := r.Anemll; f != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("caches are rotated from position %d on: ANEMLL's own call sequence (batches there, too, and the last token of the prompt twice) has a cosine of %.6f at worst and %.6f in the mean to infer only over the last %d positions, and the same best token at %.0f %% of them",
			w.pkg.Window, f.Cosine.Min, f.Cosine.Mean, f.Positions, 100*f.Top1))
	}
	if w.batch == nil {
		r.Notes = append(r.Notes, "there is no prefill to compare: "+w.pkg.NoPrefill)
		return
	}
	if w.n < w.pkg.BatchSize && w.batches == 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("prefill was not used: the sequence of %d tokens is shorter than a batch of %d", w.n, w.pkg.BatchSize))
	}
	if !w.pkg.LastTokenOutput {
		r.Notes = append(r.Notes, "prefill gives no logits in this package: the contract sequence has them behind the last batch only")
	}
}

// result is what one token's infer call gave.
type result struct {
	token  int32
	logits []float32   // a row of scores
	hidden [][]float32 // at each point, if layers are compared
	bad    *Where      // the first part whose output was not finite
}

// pending is a token that has been compared in the infer lane and waits for
// its batch.
type pending struct {
	*result
	want    []float32 // the target's row
	hasWant bool
	ref     [][]float32 // the reference's hidden states, if layers are compared
}

// walker sends a sequence through the package as a target shows it.
//
// The infer lane follows the target token by token. It also drafts for the
// reference, and keeps what it computed for tokens that turn out right. The
// batch lane follows when a batch is complete.
type walker struct {
	ctx           context.Context
	pkg           *anemll.Package
	n             int // tokens seen
	total, prompt int
	sequence      []int32

	single  *lane
	batch   *lane // nil if the package has no prefill
	batches int   // that went through prefill

	ahead   []*result // of the infer lane, drafted: for tokens n, n+1, ...
	waiting []*pending
	// Used before, to be used again.
	results []*result
	spare   []*pending

	cmp                                 comparer
	contract, infer, generated, prefill Collector
	anemll                              Collector
	parts                               []float32 // the target's row, if it had to be made

	// Of the last positions, from tailFrom on (0: none), the rows of the infer
	// lane, if ANEMLL's sequence is to be held to them.
	tailFrom int
	tail     [][]float32
	// anemllErr is why that sequence does not run.
	anemllErr error

	layers *layerWatch // nil unless asked for

	progress      func(Progress)
	start         time.Time
	lastProgress  time.Time
	read          float64 // tokens that the reference has worked through
	hasReference  bool
	err           error // of a callback that cannot return one
	layer, layerN int
}

func (w *walker) lanes(m *session.Model) (err error) {
	if w.single, err = w.newLane(m, session.InferOnly); err != nil {
		return err
	}
	if w.pkg.PrefillFunction != "" && w.pkg.BatchSize > 1 {
		w.batch, err = w.newLane(m, session.Contract)
	}
	return err
}

// lane is a session and what its last call gave.
type lane struct {
	w      *walker
	s      *session.Session
	mode   session.Mode
	tokens int         // of the call in progress
	hidden [][]float32 // at each point: rows of the call, if layers are compared
	row    []float32   // of scores, if they are no logits
	bad    *Where
}

func (w *walker) newLane(m *session.Model, mode session.Mode) (*lane, error) {
	s, err := m.NewSession()
	if err != nil {
		return nil, err
	}
	l := &lane{w: w, s: s, mode: mode}
	s.SetTap(l.tap)
	return l, nil
}

// tap looks at the hidden states that leave a part.
func (l *lane) tap(part, pos, rows int, hidden []float32) {
	if l.bad == nil {
		if k := firstNonFinite(hidden); k >= 0 {
			at := pos + l.tokens - 1
			if rows > 1 {
				at = pos + k/(len(hidden)/rows)
			}
			l.bad = &Where{Position: at, Part: l.w.partName(part), Function: l.function(part, pos)}
		}
	}
	if lw := l.w.layers; lw != nil && part < len(lw.behind) {
		l.keep(lw.behind[part], hidden)
	}
}

// keep keeps what the call in progress gives at a point of the residual stream.
func (l *lane) keep(point int, x []float32) {
	for len(l.hidden) <= point {
		l.hidden = append(l.hidden, nil)
	}
	l.hidden[point] = append(l.hidden[point][:0], x...)
}

func (l *lane) function(part, pos int) string {
	p := l.w.pkg
	switch {
	case part == 0 && !p.Monolithic():
		return p.EmbeddingsFunction
	case l.tokens > 1:
		for _, f := range p.Prefills() {
			if f.Tokens == l.tokens {
				return f.Function
			}
		}
	case p.Window > 0 && pos >= p.Window:
		return p.InferRotateFunction
	}
	return p.InferFunction
}

func (w *walker) partName(part int) string {
	if parts := w.pkg.Parts(); part < len(parts) {
		return parts[part].Name
	}
	return fmt.Sprintf("part %d", part)
}

// call sends tokens through the package: one, or a batch that it takes. visit
// sees the row of scores after the last one if there are any; it is valid
// during the call.
func (l *lane) call(ctx context.Context, tokens []int32, visit func(row []float32) error) error {
	l.tokens, l.bad = len(tokens), nil
	if l.w.layers != nil {
		l.w.layers.lane = l
		for i := range l.hidden {
			l.hidden[i] = l.hidden[i][:0]
		}
	}
	at := l.s.Pos() + len(tokens) - 1
	return l.s.Each(ctx, tokens, l.mode, func(pos int, logits []float32) error {
		if pos != at {
			return fmt.Errorf("the package gave logits after token %d, wanted %d", pos, at)
		}
		row := logits
		if l.w.pkg.Argmax {
			l.row = argmaxRow(l.row, l.s)
			row = l.row
		}
		if l.bad == nil && firstNonFinite(row) >= 0 {
			l.bad = &Where{Position: pos, Part: l.w.pkg.HeadPart().Name, Function: l.w.pkg.HeadFunction}
			if l.w.pkg.Monolithic() {
				l.bad.Function = l.function(1, pos)
			}
		}
		return visit(row)
	})
}

// A row of scores is a row of logits or, of a package that gives the best
// token of each part of the vocabulary, their logits and then their indices in
// the parts.

// argmaxRow returns the row of scores that a session of such a package has.
func argmaxRow(into []float32, s *session.Session) []float32 {
	index, value := s.Argmax()
	into = append(into[:0], value...)
	for _, i := range index {
		into = append(into, float32(i)) // exact: no vocabulary has 1<<24 tokens
	}
	return into
}

// rowOf returns the row that a package with all of the logits would give.
func (w *walker) rowOf(logits []float32) []float32 {
	if !w.pkg.Argmax || logits == nil {
		return logits
	}
	n := len(w.pkg.LogitsWidths)
	if w.parts == nil {
		w.parts = make([]float32, 2*n)
	}
	at := 0
	for i, width := range w.pkg.LogitsWidths {
		part := logits[at : at+width]
		best := 0
		for k, v := range part {
			if v > part[best] {
				best = k
			}
		}
		w.parts[i], w.parts[n+i] = part[best], float32(best)
		at += width
	}
	return w.parts
}

// best returns the best token of a finite row.
func (w *walker) best(row []float32) (int32, error) {
	if !w.pkg.Argmax {
		return arch.Argmax(row)
	}
	n := len(w.pkg.LogitsWidths)
	part, err := arch.Argmax(row[:n])
	if err != nil {
		return 0, err
	}
	at := 0
	for _, width := range w.pkg.LogitsWidths[:part] {
		at += width
	}
	return int32(at) + int32(row[n+int(part)]), nil
}

// compare returns the figures of the row l against r, which is finite.
func (w *walker) compare(r, l []float32) Point {
	if !w.pkg.Argmax {
		return w.cmp.compare(r, l)
	}
	n := len(w.pkg.LogitsWidths)
	p := w.cmp.compare(r[:n], l[:n])
	if p.NonFinite {
		return p
	}
	a, err1 := w.best(r)
	b, err2 := w.best(l)
	p.Top1 = err1 == nil && err2 == nil && a == b
	same := 0
	for i := range n {
		if r[n+i] == l[n+i] {
			same++
		}
	}
	p.Index = float64(same) / float64(n)
	return p
}

// step sends one token through the infer lane.
func (w *walker) step(token int32) (*result, error) {
	var r *result
	if n := len(w.results); n > 0 {
		r, w.results = w.results[n-1], w.results[:n-1]
	} else {
		r = &result{}
	}
	r.token = token
	err := w.single.call(w.ctx, []int32{token}, func(row []float32) error {
		r.logits = append(r.logits[:0], row...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.bad = w.single.bad
	if w.layers != nil {
		if n := len(w.layers.spare); n > 0 {
			r.hidden, w.layers.spare = w.layers.spare[n-1], w.layers.spare[:n-1]
		}
		for len(r.hidden) < len(w.single.hidden) {
			r.hidden = append(r.hidden, nil)
		}
		for i, h := range w.single.hidden {
			r.hidden[i] = append(r.hidden[i][:0], h...)
		}
	}
	return r, nil
}

// drop forgets what was drafted and takes the infer lane back to token n.
func (w *walker) drop() error {
	w.results = append(w.results, w.ahead...)
	w.ahead = w.ahead[:0]
	return w.single.s.Rewind(w.n)
}

// draft guesses how the sequence goes on; see [arch.Draft]. What it computes
// is what the infer lane would for the same tokens.
func (w *walker) draft(seq []int32, k int) ([]int32, error) {
	if len(seq) != w.n+1 {
		return nil, fmt.Errorf("a draft after %d tokens, of which %d were seen", len(seq), w.n)
	}
	if err := w.drop(); err != nil {
		return nil, err
	}
	token := seq[w.n]
	var guess []int32
	for range k {
		r, err := w.step(token)
		if err != nil {
			return nil, err
		}
		w.ahead = append(w.ahead, r)
		if r.bad != nil {
			break
		}
		next, err := w.best(r.logits)
		if err != nil {
			return nil, err
		}
		guess = append(guess, next)
		token = next
	}
	return guess, nil
}

// next returns the infer lane's result for token n.
func (w *walker) next(token int32) (*result, error) {
	if len(w.ahead) > 0 && w.ahead[0].token == token {
		r := w.ahead[0]
		w.ahead = append(w.ahead[:0], w.ahead[1:]...)
		return r, nil
	}
	if err := w.drop(); err != nil {
		return nil, err
	}
	return w.step(token)
}

// visit compares the next token of the sequence. logits are the target's, nil
// if it has none.
func (w *walker) visit(pos int, token int32, logits []float32) error {
	if logits != nil && len(logits) != w.pkg.VocabSize {
		return fmt.Errorf("the target has %d logits, the package %d", len(logits), w.pkg.VocabSize)
	}
	if k := firstNonFinite(logits); k >= 0 {
		return fmt.Errorf("the target's logit %d after token %d is %v: nothing can be held to it", k, pos, logits[k])
	}
	return w.visitRow(pos, token, w.rowOf(logits))
}

// visitRow is visit for a target that has rows of the package's kind.
func (w *walker) visitRow(pos int, token int32, logits []float32) error {
	switch {
	case w.err != nil:
		return w.err
	case pos != w.n:
		return fmt.Errorf("token %d follows token %d", pos, w.n-1)
	}
	if k := firstNonFinite(logits); k >= 0 {
		return fmt.Errorf("the target's score %d after token %d is %v: nothing can be held to it", k, pos, logits[k])
	}
	r, err := w.next(token)
	if err != nil {
		return err
	}
	w.n++
	w.sequence = append(w.sequence, token)
	w.report()
	if logits != nil {
		pt := w.compare(logits, r.logits)
		w.infer.Add(pos, pt, r.bad)
		if pos >= w.prompt {
			w.generated.Add(pos, pt, r.bad)
		}
	}
	if w.tailFrom > 0 && pos >= w.tailFrom {
		w.tail = append(w.tail, slices.Clone(r.logits))
	}
	var ref [][]float32
	if w.layers != nil {
		if ref, err = w.layers.reference(pos); err != nil {
			return err
		}
		w.layers.addInfer(ref, r.hidden)
		w.layers.spare, r.hidden = append(w.layers.spare, r.hidden), nil
	}
	if w.batch == nil {
		w.results = append(w.results, r)
		return nil
	}
	if len(w.waiting) == w.pkg.BatchSize {
		if err := w.flush(false); err != nil {
			return err
		}
	}
	p := &pending{}
	if n := len(w.spare); n > 0 {
		p, w.spare = w.spare[n-1], w.spare[:n-1]
	}
	p.result, p.ref = r, ref
	if p.hasWant = logits != nil; p.hasWant {
		p.want = append(p.want[:0], logits...)
	}
	w.waiting = append(w.waiting, p)
	return nil
}

// against compares a row of the batch lane at the position of a pending
// token.
func (w *walker) against(p *pending, pos int, logits []float32) {
	bad := w.batch.bad
	if p.hasWant {
		w.contract.Add(pos, w.compare(p.want, logits), bad)
	}
	pt := Point{NonFinite: true}
	if firstNonFinite(p.logits) < 0 {
		pt = w.compare(p.logits, logits)
	} else if bad == nil {
		bad = p.bad
	}
	w.prefill.Add(pos, pt, bad)
}

// flush sends the waiting tokens through the batch lane: a full batch in one
// call, unless the package takes no batch at that position, the rest at the end
// of the sequence in as few as the package has functions for.
func (w *walker) flush(end bool) error {
	tokens := make([]int32, len(w.waiting))
	for i, p := range w.waiting {
		tokens[i] = p.token
	}
	for done := 0; done < len(tokens); {
		rest := len(tokens) - done
		k := w.batch.s.NextCall(rest)
		if end && k == rest && k > 1 && !w.pkg.LastTokenOutput {
			// A batch that gives no logits at the end of a prompt would be of no
			// use: runtimes leave the last token to infer.
			k = w.batch.s.NextCall(rest - 1)
		}
		first := w.batch.s.Pos()
		last := w.waiting[done+k-1]
		err := w.batch.call(w.ctx, tokens[done:done+k], func(logits []float32) error {
			w.against(last, first+k-1, logits)
			return nil
		})
		if err != nil {
			return err
		}
		if k > 1 {
			w.batches++
		}
		if k > 1 && !w.pkg.LastTokenOutput && w.batch.bad != nil {
			// No logits will tell.
			w.prefill.Add(w.batch.bad.Position, Point{NonFinite: true}, w.batch.bad)
		}
		if w.layers != nil && k > 1 {
			w.layers.addPrefill(w.waiting[done:done+k], w.batch.hidden, w.pkg.LastTokenOutput)
		}
		done += k
	}
	for _, p := range w.waiting {
		w.results, p.result = append(w.results, p.result), nil
	}
	w.spare = append(w.spare, w.waiting...)
	w.waiting = w.waiting[:0]
	return nil
}

// finish sends what is left through the batch lane.
func (w *walker) finish() error {
	if w.err != nil {
		return w.err
	}
	if w.n != w.total {
		return fmt.Errorf("the target gave %d tokens, wanted %d", w.n, w.total)
	}
	if len(w.waiting) == 0 {
		return nil
	}
	return w.flush(true)
}

// anemllTail is the number of positions over which ANEMLL's sequence is held to
// infer only.
const anemllTail = 16

// anemllSequence feeds what comes before the tail as ANEMLL's runtimes feed a
// prompt, the tail token by token, and compares.
func (w *walker) anemllSequence(m *session.Model) error {
	if len(w.tail) == 0 {
		return nil
	}
	l, err := w.newLane(m, session.AnemllSequence)
	if err != nil {
		return err
	}
	add := func(pos int) func([]float32) error {
		return func(row []float32) error {
			pt := Point{NonFinite: true}
			if want := w.tail[pos-w.tailFrom]; firstNonFinite(want) < 0 {
				pt = w.compare(want, row)
			}
			w.anemll.Add(pos, pt, l.bad)
			return nil
		}
	}
	err = l.call(w.ctx, w.sequence[:w.tailFrom+1], add(w.tailFrom))
	l.mode = session.InferOnly
	for pos := w.tailFrom + 1; pos < w.n && err == nil; pos++ {
		err = l.call(w.ctx, w.sequence[pos:pos+1], add(pos))
	}
	if err != nil && w.ctx.Err() == nil {
		// It can be that its batches do not even fit the caches.
		w.anemll, w.anemllErr, err = Collector{}, err, nil
	}
	return err
}

// hidden sees the reference's hidden states.
func (w *walker) hidden(layer, layers int, x dense.Matrix) {
	w.layer, w.layerN = max(layer+1, 0), layers
	if layer == layers {
		w.layer = layers
	}
	w.hasReference = true
	w.read = max(w.read, min(float64(w.total), float64(w.n)+float64(x.Rows)*float64(layer+2)/float64(layers+2)))
	w.report()
	if w.layers != nil && w.err == nil {
		w.err = w.layers.see(w.n, layer, x)
	}
}

// progressEvery is how often progress is reported.
const progressEvery = 100 * time.Millisecond

// report tells how far the work is. The reference's tokens and the package's
// count half each.
func (w *walker) report() {
	if w.progress == nil || time.Since(w.lastProgress) < progressEvery {
		return
	}
	w.lastProgress = time.Now()
	done := float64(w.n)
	if w.hasReference {
		done = (done + max(w.read, done)) / 2
	}
	p := Progress{Done: int(done), Total: w.total, Layer: w.layer, Layers: w.layerN, Elapsed: time.Since(w.start)}
	if f := done / float64(w.total); f > 0.02 {
		p.Left = time.Duration(float64(p.Elapsed) * (1 - f) / f)
	}
	w.progress(p)
}

// compareStates holds the states after the last token to the golden's.
func (w *walker) compareStates(g *Golden, r *Report) ([]StateFigures, error) {
	if len(g.states) == 0 {
		return nil, nil
	}
	l := w.batch
	if l == nil {
		l = w.single
	}
	states := l.s.States()
	switch {
	case w.n != len(g.tokens):
		r.Notes = append(r.Notes, "the states were not compared: the golden's are those after its last token")
		return nil, nil
	case len(states) != 1:
		r.Notes = append(r.Notes, "the states were not compared: each chunk has its own")
		return nil, nil
	}
	names := states[0].Names()
	var out []StateFigures
	for _, name := range names {
		a, ok := g.states[name]
		if !ok {
			continue
		}
		t, err := states[0].Read(name)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(t.Shape, a.shape) {
			return nil, fmt.Errorf("state %s has shape %v, the golden's %v", name, t.Shape, a.shape)
		}
		want := make([]float32, len(t.Float))
		a.floats(want, 0)
		f := StateFigures{Name: name}
		if firstNonFinite(t.Float) < 0 {
			f.Cosine, f.MaxDiff, f.Relative = vectors(want, t.Float)
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, errors.New("the golden holds states, but none of the package's")
	}
	return out, nil
}
