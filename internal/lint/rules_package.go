package lint

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"anemone/internal/ane"
)

func meta(p *pass, t *Target) {
	if t.Package == nil {
		return
	}
	for _, s := range t.Package.Problems {
		p.report(at{}, "%s", s)
	}
}

func metadata(p *pass, t *Target) {
	if t.Package == nil {
		return
	}
	q := t.Package
	for _, part := range q.Parts() {
		if part.Model == nil {
			continue
		}
		want := map[string]int{"com.anemll.context_length": q.ContextLength, "com.anemll.batch_size": q.BatchSize, "com.anemll.num_chunks": len(q.Chunks)}
		for i, c := range q.Chunks {
			if c == part {
				want["com.anemll.chunk_no"] = i + 1
			}
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			n, said := want[key], part.Model.Metadata.User[key]
			if said == "" || n == 0 {
				continue
			}
			if v, err := strconv.Atoi(said); err != nil || v != n {
				p.report(at{part: part.Name, name: key}, "says %q, the package has %d", said, n)
			}
		}
	}
}

func noTokenizer(p *pass, t *Target) {
	if t.Package != nil && t.Package.Dir != "" && !t.Package.HasTokenizer() {
		p.report(at{}, "no tokenizer.json")
	}
}

func noPrefill(p *pass, t *Target) {
	if t.Package != nil && t.Package.NoPrefill != "" {
		p.report(at{}, "%s", t.Package.NoPrefill)
	}
}

func contextShort(p *pass, t *Target) {
	if t.Package != nil && t.Package.ContextLength > 0 && t.Package.ContextLength < ane.MinContext {
		p.report(at{name: "context_length"}, "%d positions", t.Package.ContextLength)
	}
}

func partNotCompiled(p *pass, t *Target) {
	if t.Package == nil {
		return
	}
	for _, part := range t.Package.Parts() {
		base, ok := strings.CutSuffix(part.Path, ".mlpackage")
		if !ok {
			continue
		}
		if _, err := os.Stat(base + ".mlmodelc"); err != nil {
			p.report(at{name: filepath.Base(part.Path)}, "no .mlmodelc beside it")
		}
	}
}
