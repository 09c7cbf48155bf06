package modelproto

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"

	"google.golang.org/protobuf/proto"

	"anemone/coreml"
	"anemone/coreml/modelproto/modelpb"
	"anemone/mil"
)

var toPB = map[mil.DType]modelpb.ArrayFeatureType_DataType{
	mil.Float16: modelpb.ArrayFeatureType_FLOAT16,
	mil.Float32: modelpb.ArrayFeatureType_FLOAT32,
	mil.Float64: modelpb.ArrayFeatureType_FLOAT64,
	mil.Int8:    modelpb.ArrayFeatureType_INT8,
	mil.Int32:   modelpb.ArrayFeatureType_INT32,
}

// EncodeDescription returns the stored form of a model's description: with
// a list of functions if the model has a default function, else in the older
// form of a single function. What the model was read with and has no fields
// for (RawDescription) is kept if functions and features are still the same.
// Metadata is always present.
func EncodeDescription(m *coreml.Model) (*modelpb.ModelDescription, error) {
	d, err := encodeDescription(m)
	if err != nil || len(m.RawDescription) == 0 {
		return d, err
	}
	raw, err := UnmarshalDescription(m.RawDescription)
	if err != nil {
		return nil, err
	}
	was := &coreml.Model{}
	if err := decodeDescription(was, raw); err != nil {
		return nil, err
	}
	if was.DefaultFunction != m.DefaultFunction || !reflect.DeepEqual(was.Functions, m.Functions) {
		return d, nil
	}
	if raw.Metadata == nil || !reflect.DeepEqual(was.Metadata, m.Metadata) {
		raw.Metadata = d.Metadata
	}
	return raw, nil
}

// UnmarshalDescription reads a description on its own, as compiled models
// have it.
func UnmarshalDescription(b []byte) (*modelpb.ModelDescription, error) {
	d := &modelpb.ModelDescription{}
	if err := proto.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("damaged model description: %w", err)
	}
	return d, nil
}

func encodeDescription(m *coreml.Model) (*modelpb.ModelDescription, error) {
	d := &modelpb.ModelDescription{
		DefaultFunctionName: m.DefaultFunction,
		Metadata: &modelpb.Metadata{
			ShortDescription: m.Metadata.ShortDescription,
			VersionString:    m.Metadata.Version,
			Author:           m.Metadata.Author,
			License:          m.Metadata.License,
			UserDefined:      maps.Clone(m.Metadata.User),
		},
	}
	if m.DefaultFunction == "" && len(m.Functions) != 1 {
		return nil, fmt.Errorf("%d functions and no default function: name one", len(m.Functions))
	}
	for _, f := range m.Functions {
		in, err := encodeFeatures(f.Inputs, false)
		if err != nil {
			return nil, fmt.Errorf("function %q: input %w", f.Name, err)
		}
		out, err := encodeFeatures(f.Outputs, false)
		if err != nil {
			return nil, fmt.Errorf("function %q: output %w", f.Name, err)
		}
		state, err := encodeFeatures(f.States, true)
		if err != nil {
			return nil, fmt.Errorf("function %q: state %w", f.Name, err)
		}
		if m.DefaultFunction == "" {
			d.Input, d.Output, d.State = in, out, state
		} else {
			d.Functions = append(d.Functions, &modelpb.FunctionDescription{Name: f.Name, Input: in, Output: out, State: state})
		}
	}
	return d, nil
}

func encodeFeatures(fs []coreml.Feature, state bool) ([]*modelpb.FeatureDescription, error) {
	var out []*modelpb.FeatureDescription
	for _, f := range fs {
		dt, ok := toPB[f.DType]
		if !ok {
			return nil, fmt.Errorf("%q: arrays of type %v cannot be features", f.Name, f.DType)
		}
		a := &modelpb.ArrayFeatureType{DataType: dt}
		var err error
		if a.Shape, err = encodeShape(f.Shape); err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		flexible := len(f.Shapes) > 0 || len(f.Ranges) > 0
		switch {
		case len(f.Shapes) > 0 && len(f.Ranges) > 0:
			return nil, fmt.Errorf("%q: both enumerated shapes and ranges", f.Name)
		case flexible && state:
			return nil, fmt.Errorf("%q: a state has one shape", f.Name)
		case len(f.Shapes) > 0:
			e := &modelpb.ArrayFeatureType_EnumeratedShapes{}
			for _, s := range f.Shapes {
				p, err := encodeShape(s)
				if err != nil {
					return nil, fmt.Errorf("%q: %w", f.Name, err)
				}
				e.Shapes = append(e.Shapes, &modelpb.ArrayFeatureType_Shape{Shape: p})
			}
			a.ShapeFlexibility = &modelpb.ArrayFeatureType_EnumeratedShapes_{EnumeratedShapes: e}
		case len(f.Ranges) > 0:
			e := &modelpb.ArrayFeatureType_ShapeRange{}
			for i, r := range f.Ranges {
				if r.Min < 0 || r.Max >= 0 && r.Max < r.Min {
					return nil, fmt.Errorf("%q: dimension %d: no range from %d to %d", f.Name, i, r.Min, r.Max)
				}
				e.SizeRanges = append(e.SizeRanges, &modelpb.SizeRange{LowerBound: uint64(r.Min), UpperBound: int64(max(r.Max, -1))})
			}
			a.ShapeFlexibility = &modelpb.ArrayFeatureType_ShapeRange_{ShapeRange: e}
		}
		t := &modelpb.FeatureType{IsOptional: f.Optional, Type: &modelpb.FeatureType_MultiArrayType{MultiArrayType: a}}
		if state {
			t.Type = &modelpb.FeatureType_StateType{StateType: &modelpb.StateFeatureType{Type: &modelpb.StateFeatureType_ArrayType{ArrayType: a}}}
		}
		out = append(out, &modelpb.FeatureDescription{Name: f.Name, ShortDescription: f.Description, Type: t})
	}
	return out, nil
}

func encodeShape(s []int) ([]int64, error) {
	var out []int64
	for _, n := range s {
		if n < 0 {
			return nil, fmt.Errorf("shape %v has an unknown dimension; give a default and the ranges", s)
		}
		out = append(out, int64(n))
	}
	return out, nil
}

// DecodeDescription sets the functions, the default function and the metadata
// of m from their stored form, and the raw description if that says more.
func DecodeDescription(m *coreml.Model, d *modelpb.ModelDescription) error {
	if err := decodeDescription(m, d); err != nil {
		return err
	}
	raw, err := MarshalDescription(d)
	if err != nil {
		return err
	}
	m.RawDescription = nil
	if e, err := encodeDescription(m); err == nil {
		if d.GetMetadata() == nil {
			e.Metadata = nil
		}
		if b, err := MarshalDescription(e); err == nil && bytes.Equal(b, raw) {
			return nil // the fields say it all
		}
	}
	m.RawDescription = raw
	return nil
}

func decodeDescription(m *coreml.Model, d *modelpb.ModelDescription) error {
	md := d.GetMetadata()
	m.Metadata = coreml.Metadata{
		ShortDescription: md.GetShortDescription(),
		Version:          md.GetVersionString(),
		Author:           md.GetAuthor(),
		License:          md.GetLicense(),
		User:             maps.Clone(md.GetUserDefined()),
	}
	m.Functions, m.DefaultFunction = nil, ""
	fds := d.GetFunctions()
	if len(fds) == 0 {
		fds = []*modelpb.FunctionDescription{{Name: "main", Input: d.GetInput(), Output: d.GetOutput(), State: d.GetState()}}
	} else {
		if len(d.GetInput())+len(d.GetOutput())+len(d.GetState()) > 0 {
			return errors.New("description has functions and features beside them, want one of the two")
		}
		if m.DefaultFunction = d.GetDefaultFunctionName(); m.DefaultFunction == "" {
			m.DefaultFunction = fds[0].GetName()
		}
	}
	for _, fd := range fds {
		f := coreml.Function{Name: fd.GetName()}
		var err error
		if f.Inputs, err = decodeFeatures(fd.GetInput(), false); err != nil {
			return fmt.Errorf("function %q: input %w", f.Name, err)
		}
		if f.Outputs, err = decodeFeatures(fd.GetOutput(), false); err != nil {
			return fmt.Errorf("function %q: output %w", f.Name, err)
		}
		if f.States, err = decodeFeatures(fd.GetState(), true); err != nil {
			return fmt.Errorf("function %q: state %w", f.Name, err)
		}
		m.Functions = append(m.Functions, f)
	}
	return nil
}

func decodeFeatures(fds []*modelpb.FeatureDescription, state bool) ([]coreml.Feature, error) {
	var out []coreml.Feature
	for _, fd := range fds {
		f := coreml.Feature{Name: fd.GetName(), Description: fd.GetShortDescription(), Optional: fd.GetType().GetIsOptional()}
		a := fd.GetType().GetMultiArrayType()
		if state {
			a = fd.GetType().GetStateType().GetArrayType()
		}
		if a == nil {
			return nil, fmt.Errorf("%q is not a multi-array, the only type of feature supported", f.Name)
		}
		for d, p := range toPB {
			if p == a.GetDataType() {
				f.DType = d
			}
		}
		if f.DType == mil.InvalidDType {
			return nil, fmt.Errorf("%q is an array of unknown type %d", f.Name, a.GetDataType())
		}
		var err error
		if f.Shape, err = decodeShape(a.GetShape()); err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		for _, s := range a.GetEnumeratedShapes().GetShapes() {
			p, err := decodeShape(s.GetShape())
			if err != nil {
				return nil, fmt.Errorf("%q: %w", f.Name, err)
			}
			f.Shapes = append(f.Shapes, p)
		}
		for i, r := range a.GetShapeRange().GetSizeRanges() {
			lo, hi := r.GetLowerBound(), r.GetUpperBound()
			if lo > math.MaxInt || hi > math.MaxInt || hi >= 0 && uint64(hi) < lo {
				return nil, fmt.Errorf("%q: dimension %d: no range from %d to %d", f.Name, i, lo, hi)
			}
			f.Ranges = append(f.Ranges, coreml.Range{Min: int(lo), Max: int(max(hi, -1))})
		}
		out = append(out, f)
	}
	return out, nil
}

func decodeShape(s []int64) ([]int, error) {
	var out []int
	for _, n := range s {
		if n < 0 || n > math.MaxInt {
			return nil, fmt.Errorf("shape %v has a dimension out of range", s)
		}
		out = append(out, int(n))
	}
	return out, nil
}
