package lint

import (
	"fmt"

	"anemone/mil"
)

func programInvalid(p *pass, m *model) {
	if m.Content == nil || m.Content.Program == nil {
		p.report(m.at(""), "no program")
		return
	}
	if err := mil.Verify(m.Content.Program); err != nil {
		p.report(m.at(""), "%v", err)
	}
}

// specOf is the first specification version that has an operation set.
var specOf = map[mil.Opset]int{mil.CoreML5: 6, mil.CoreML6: 7, mil.CoreML7: 8, mil.CoreML8: 9, "CoreML9": 10}

func specVersion(p *pass, m *model) {
	if m.Content == nil {
		return
	}
	have := m.Content.SpecVersion
	for _, f := range m.functions {
		if want := specOf[f.f.Opset]; want > have {
			p.report(f.at(""), "operation set %s needs version %d (%s), the model has %d", f.f.Opset, want, firstSystems(want), have)
		}
		if have < 9 {
			f.states(func(v *mil.Value) {
				p.report(f.at(v.Name), "states need version 9 (%s), the model has %d", firstSystems(9), have)
			})
		}
	}
	if have < 9 && len(m.Content.Functions) > 1 {
		p.report(m.at(""), "several functions need version 9 (%s), the model has %d", firstSystems(9), have)
	}
}

func defaultFunction(p *pass, m *model) {
	if m.Content == nil {
		return
	}
	d := m.Content.DefaultFunction
	switch {
	case d == "" && len(m.Content.Functions) > 1:
		p.report(m.at("defaultFunctionName"), "%d functions and no default one", len(m.Content.Functions))
	case d != "" && m.Content.Function(d) == nil:
		p.report(m.at("defaultFunctionName"), "%q does not exist", d)
	}
}

func osSpec(p *pass, m *model) {
	if m.Content != nil && m.Content.SpecVersion > p.opt.OS.Spec {
		p.report(m.at("specificationVersion"), "%d is for %s and later; %s loads up to %d", m.Content.SpecVersion, firstSystems(m.Content.SpecVersion), p.opt.OS.Name, p.opt.OS.Spec)
	}
}

func osCompiler(p *pass, m *model) {
	if m.Format > p.opt.OS.Format {
		by := ""
		if m.Compiler != "" {
			by = fmt.Sprintf(" (by coremlc %s)", m.Compiler)
		}
		p.report(m.at("coremldata.bin"), "compiled format %d%s; %s knows up to %d", m.Format, by, p.opt.OS.Name, p.opt.OS.Format)
	}
}
