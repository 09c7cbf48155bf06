package compress

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"anemone/mil"
)

// DefaultGroup is the number of output channels that share a table when
// nothing else is asked for. Smaller groups are more accurate but slow the
// Neural Engine down.
const DefaultGroup = 8

// Encoding says how a weight is stored. The zero Encoding is plain fp16.
type Encoding struct {
	// Bits is the width of an index into the table: 1, 2, 3, 4, 6 or 8.
	// 0 means fp16 without a table.
	Bits int
	// Group is the number of output channels that share one table; 0 means
	// that the whole tensor does.
	Group int
}

// ParseEncoding reads the notation of the command line: "none" for fp16, or
// BITS or BITS,GROUP for tables, such as "4,16". GROUP is 8 if it is left
// out; 0 and "tensor" mean one table per tensor.
func ParseEncoding(s string) (Encoding, error) {
	e, err := parseEncoding(strings.TrimSpace(s))
	if err != nil {
		return Encoding{}, fmt.Errorf("compression %q: %w; want none, or BITS or BITS,GROUP with 1, 2, 3, 4, 6 or 8 bits, such as 4,8", s, err)
	}
	return e, nil
}

func parseEncoding(s string) (Encoding, error) {
	if s == "none" {
		return Encoding{}, nil
	}
	bits, group, grouped := strings.Cut(s, ",")
	b, err := parseNumber(bits)
	if err != nil {
		return Encoding{}, fmt.Errorf("bits: %w", err)
	}
	e := Encoding{Bits: b, Group: DefaultGroup}
	if _, ok := e.indexType(); !ok {
		return Encoding{}, fmt.Errorf("%d bits are not a width that Core ML has tables for", b)
	}
	if grouped {
		if group = strings.TrimSpace(group); group == "tensor" || group == "t" {
			e.Group = 0
		} else if e.Group, err = parseNumber(group); err != nil {
			return Encoding{}, fmt.Errorf("group: %w", err)
		}
	}
	return e, nil
}

// parseNumber reads a number of at most nine digits, without a sign.
func parseNumber(s string) (int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, errors.New("number missing")
	}
	if len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	return strconv.Atoi(s)
}

// String returns e in the notation of [ParseEncoding].
func (e Encoding) String() string {
	if e.Bits == 0 {
		return "none"
	}
	return fmt.Sprintf("%d,%d", e.Bits, e.Group)
}

// indexType returns the element type of the indices.
func (e Encoding) indexType() (mil.DType, bool) {
	switch e.Bits {
	case 1:
		return mil.UInt1, true
	case 2:
		return mil.UInt2, true
	case 3:
		return mil.UInt3, true
	case 4:
		return mil.UInt4, true
	case 6:
		return mil.UInt6, true
	case 8:
		return mil.UInt8, true
	}
	return mil.InvalidDType, false
}

// FitGroup returns the number of rows per table that is nearest to asked and
// divides rows, as the operation needs it: the largest divisor that is not
// above asked, unless it is less than half of it; then the smallest divisor
// above, unless that is more than four times as large. asked <= 0 means all
// rows.
func FitGroup(rows, asked int) int {
	if asked <= 0 || asked >= rows {
		return rows
	}
	below := asked
	for rows%below != 0 {
		below--
	}
	if below >= (asked+1)/2 {
		return below
	}
	limit := rows
	if asked <= math.MaxInt/4 {
		limit = min(limit, 4*asked)
	}
	for above := asked + 1; above <= limit; above++ {
		if rows%above == 0 {
			return above
		}
	}
	return below
}
