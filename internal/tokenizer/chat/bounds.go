package chat

import (
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"
)

var errWithinItself = errors.New("a list or namespace within itself is not supported")

// extent is what bound found out about a list or dictionary.
type extent struct {
	elements int // of it and of all within it, those in two places counted twice
	depth    int
}

// bound refuses a value that nobody could print or compare: one with too many
// elements, nested too deep, or that holds what it is about to be put into (a
// list or dictionary, or none). Values get inner ones only through set and
// append, which ask here, so nothing is ever within itself.
func bound(v, into jinja.Value) error {
	_, err := measure(v, into, map[any]extent{}, 0)
	return err
}

// measure looks at each list and dictionary once, however many places it is
// in: n steps can make a value of 2^n elements.
func measure(v, into jinja.Value, seen map[any]extent, depth int) (extent, error) {
	var this any
	var items []jinja.Value
	var dict *jinja.Dict
	switch {
	case v.IsString() && len(v.AsString()) > maxValue:
		return extent{}, fmt.Errorf("the value is too large: more than %d bytes", maxValue)
	case v.IsList():
		this, items = v.AsList(), v.AsList().Items
		if into.IsList() && into.AsList() == v.AsList() {
			return extent{}, errWithinItself
		}
	case v.IsDict():
		dict = v.AsDict()
		this = dict
		if into.IsDict() && into.AsDict() == dict {
			return extent{}, errWithinItself
		}
	default:
		return extent{elements: 1}, nil
	}
	if e, ok := seen[this]; ok {
		return e, nil
	}
	all := extent{elements: 1}
	add := func(v jinja.Value) error {
		e, err := measure(v, into, seen, depth+1)
		if err != nil {
			return err
		}
		all.depth = max(all.depth, e.depth+1)
		switch all.elements += e.elements; {
		case all.elements > maxElements:
			return fmt.Errorf("the value is too large: more than %d elements", maxElements)
		case depth+all.depth > maxDepth:
			return fmt.Errorf("the value is nested more than %d deep", maxDepth)
		}
		return nil
	}
	for _, v := range items {
		if err := add(v); err != nil {
			return all, err
		}
	}
	if dict != nil {
		for _, key := range dict.Keys {
			if err := add(dict.Data[key]); err != nil {
				return all, err
			}
		}
	}
	seen[this] = all
	return all, nil
}
