package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"anemone/coreml"
	"anemone/internal/ane"
	"anemone/internal/anemll"
	"anemone/internal/inspect/stored"
	"anemone/mil"
)

// Severity says how bad a finding is.
type Severity string

// Severities.
const (
	// Error: it does not load, does not run on the Neural Engine, or computes
	// something else there.
	Error Severity = "error"
	// Warning: it is slower, larger or less exact than it could be, or fails on
	// some systems.
	Warning Severity = "warning"
	// Info: worth knowing.
	Info Severity = "info"
)

func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// Finding is one thing that a rule found.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Part     string   `json:"part,omitempty"`     // name of the model; empty for the package
	Function string   `json:"function,omitempty"` // empty for the model as a whole
	// Name is that of the operation, weight, feature or key; More are others
	// of which the same is true.
	Name  string   `json:"name,omitempty"`
	More  []string `json:"more,omitempty"`
	Found string   `json:"found"`
	Why   string   `json:"why"`
	Fix   string   `json:"fix"`
}

// Where returns the place of a finding, its name excepted.
func (f *Finding) Where() string {
	var s []string
	for _, x := range []string{f.Part, f.Function} {
		if x != "" {
			s = append(s, x)
		}
	}
	return strings.Join(s, ", ")
}

// Model is a model to look at, and what is known of it beside its content.
type Model struct {
	Part    string // its name in findings
	Content *coreml.Model
	// Embeddings says that it only turns tokens into hidden states, Head that
	// it turns those into logits. A model of neither kind, or of both, has
	// neither set.
	Embeddings, Head bool
	// Format is the version of the compiled format, 0 for what is not compiled
	// and where it is not known; Compiler is the version of the compiler.
	Format   int
	Compiler string
	// LUT is the number of bits that the name of the file or meta.yaml gives
	// for its look-up tables; 0 for none, and if neither says.
	LUT int
}

// Target is what to look at: one model, or a package and its models.
type Target struct {
	Package *anemll.Package // nil for a single model
	Models  []Model
}

// Options are choices of Check. The zero value is fine.
type Options struct {
	// OS is the oldest system that the models are for. Without it the rules
	// about versions have nothing to say.
	OS OS
	// Deep reads the weights.
	Deep bool
	// Ignore names rules that are left out.
	Ignore []string
}

// Rule describes a rule.
type Rule struct {
	Name     string
	Severity Severity // of the worst that it finds
	Finds    string   // what it looks for
	Why      string   // that matters
	Fix      string   // what to do about it
	Deep     bool     // it reads weights
	NeedsOS  bool     // it needs to know the system
}

// Rules returns all rules, in the order of docs/lint.md.
func Rules() []Rule {
	out := make([]Rule, len(rules))
	for i := range rules {
		out[i] = rules[i].Rule
	}
	return out
}

// rule is a rule with what it does: one of the three.
type rule struct {
	Rule
	function func(p *pass, f *function) // for every function of every model
	model    func(p *pass, m *model)    // for every model
	target   func(p *pass, t *Target)   // once
}

// pass is one run of one rule.
type pass struct {
	ctx   context.Context
	rule  *Rule
	opt   *Options
	out   []Finding
	index map[string]int // findings by all but their name
}

// at is a place to report: of the part, function and name, any may be empty.
type at struct{ part, function, name string }

func (p *pass) report(w at, format string, args ...any) {
	p.reportAs(p.rule.Severity, w, format, args...)
}

// reportAs is like report, with a severity of its own. Findings that differ in
// nothing but the name are one.
func (p *pass) reportAs(s Severity, w at, format string, args ...any) {
	f := Finding{Rule: p.rule.Name, Severity: s, Part: w.part, Function: w.function, Name: w.name, Found: fmt.Sprintf(format, args...), Why: p.rule.Why, Fix: p.rule.Fix}
	key := strings.Join([]string{string(s), f.Part, f.Function, f.Found}, "\x00")
	if i, ok := p.index[key]; ok {
		if o := &p.out[i]; w.name != "" && w.name != o.Name && (len(o.More) == 0 || o.More[len(o.More)-1] != w.name) {
			o.More = append(o.More, w.name)
		}
		return
	}
	p.index[key] = len(p.out)
	p.out = append(p.out, f)
}

// model is a Model with what rules ask for again and again.
type model struct {
	*Model
	functions []*function
	weights   []stored.Tensor
}

// function is a function with who uses what.
type function struct {
	m     *model
	f     *mil.Function
	d     *coreml.Function // its description; nil if there is none
	ops   []*mil.Operation // of all blocks, in order
	users map[*mil.Value][]*mil.Operation
	// outputs of the body and of nested blocks
	outputs map[*mil.Value]bool
}

func (f *function) at(name string) at { return at{f.m.Part, f.f.Name, name} }
func (m *model) at(name string) at    { return at{part: m.Part, name: name} }

// opName returns the name by which an operation is best found in the text.
func opName(op *mil.Operation) string {
	if len(op.Results) > 0 && op.Results[0].Name != "" {
		return op.Results[0].Name
	}
	return op.Name
}

func newModel(m *Model) *model {
	x := &model{Model: m}
	if m.Content == nil || m.Content.Program == nil {
		return x
	}
	for _, f := range m.Content.Program.Functions {
		if f == nil || f.Body == nil {
			continue
		}
		fn := &function{m: x, f: f, d: m.Content.Function(f.Name), users: map[*mil.Value][]*mil.Operation{}, outputs: map[*mil.Value]bool{}}
		var block func(b *mil.Block)
		block = func(b *mil.Block) {
			for _, op := range b.Ops {
				fn.ops = append(fn.ops, op)
				for _, a := range op.Args {
					for _, v := range a.Values {
						if u := fn.users[v]; len(u) == 0 || u[len(u)-1] != op {
							fn.users[v] = append(u, op)
						}
					}
				}
				for _, n := range op.Blocks {
					block(n)
				}
			}
			for _, v := range b.Outputs {
				fn.outputs[v] = true
			}
		}
		block(f.Body)
		x.functions = append(x.functions, fn)
	}
	x.weights = stored.List(m.Content.Program, nil)
	if !m.Embeddings && len(x.functions) > 0 {
		x.Embeddings = true
		for _, f := range x.functions {
			x.Embeddings = x.Embeddings && ane.IsEmbeddings(f.f)
		}
	}
	return x
}

// Check runs the rules and returns what they find, the worst first. It fails
// if ctx ends, or if the options name a rule that does not exist.
func Check(ctx context.Context, t Target, opt Options) ([]Finding, error) {
	for _, name := range opt.Ignore {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.Name == name }) {
			return nil, fmt.Errorf("there is no lint rule %q to ignore", name)
		}
	}
	models := make([]*model, len(t.Models))
	for i := range t.Models {
		m := t.Models[i] // the copy learns what it is
		models[i] = newModel(&m)
	}
	var out []Finding
	for i := range rules {
		r := &rules[i]
		if r.Deep && !opt.Deep || r.NeedsOS && opt.OS.IsZero() || slices.Contains(opt.Ignore, r.Name) {
			continue
		}
		p := &pass{ctx: ctx, rule: &r.Rule, opt: &opt, index: map[string]int{}}
		if r.target != nil {
			r.target(p, &t)
		}
		for _, m := range models {
			if r.model != nil {
				r.model(p, m)
			}
			if r.function != nil {
				for _, f := range m.functions {
					r.function(p, f)
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out = append(out, p.out...)
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	return out, nil
}

// Count returns the number of findings of a severity.
func Count(fs []Finding, s Severity) (n int) {
	for i := range fs {
		if fs[i].Severity == s {
			n++
		}
	}
	return n
}

// Group is what one rule found.
type Group struct {
	Rule     string
	Severity Severity
	Why, Fix string
	Findings []Finding
}

// Groups gathers findings by rule and severity, in their order.
func Groups(fs []Finding) []Group {
	var out []Group
	for _, f := range fs {
		i := slices.IndexFunc(out, func(g Group) bool { return g.Rule == f.Rule && g.Severity == f.Severity })
		if i < 0 {
			i = len(out)
			out = append(out, Group{Rule: f.Rule, Severity: f.Severity, Why: f.Why, Fix: f.Fix})
		}
		out[i].Findings = append(out[i].Findings, f)
	}
	return out
}
