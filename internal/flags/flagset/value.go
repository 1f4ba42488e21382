package flagset

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Values have the types of JSON: nil, bool, float64, string, []any, map[string]any. One operator of the reference
// (the difference of nothing) yields an int, which compares differently; this package does the same.

func isNumber(v any) bool {
	switch v.(type) {
	case float64, int:
		return true
	}
	return false
}

func isPrimitive(v any) bool {
	switch v.(type) {
	case bool, string, float64, int:
		return true
	}
	return false
}

// truthy reports whether a value counts as true: not zero, not empty, not null.
func truthy(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case float64:
		return v != 0
	case int:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return false
}

var (
	errNoList   = errors.New("expected a list")
	errNoNumber = errors.New("expected a number")
	errNoString = errors.New("expected a string")
	errTooFew   = errors.New("too few arguments")
)

func asList(v any) ([]any, error) {
	l, ok := v.([]any)
	if !ok {
		return nil, errNoList
	}
	return l, nil
}

// number converts for arithmetic: non-numeric text is 0, and a value that is neither text nor a number is an error.
func number(v any) (float64, error) {
	switch v := v.(type) {
	case string:
		f, _ := strconv.ParseFloat(v, 64)
		return f, nil
	case float64:
		return v, nil
	case int:
		return float64(v), nil
	}
	return 0, errNoNumber
}

// loose converts for comparisons, like JavaScript: a non-number is NaN, which equals nothing.
func loose(v any) float64 {
	switch v := v.(type) {
	case nil:
		return 0
	case float64:
		return v
	case int:
		return float64(v)
	case bool:
		if v {
			return 1
		}
		return 0
	case string:
		if strings.TrimSpace(v) == "" {
			return 0
		}
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			return f
		}
	}
	return math.NaN()
}

// text converts for concatenation: numbers and null have a text form, booleans and collections do not.
func text(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case int:
		return strconv.Itoa(v), nil
	}
	return "", errNoString
}

// looseEqual is ==.
func looseEqual(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return x == y
		}
	}
	return loose(a) == loose(b)
}

// strictEqual is ===.
func strictEqual(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return reflect.TypeOf(a).Kind() == reflect.TypeOf(b).Kind() && looseEqual(a, b)
}

func less(a, b any) bool {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return x < y
		}
	}
	return loose(a) < loose(b)
}

var errCompare = errors.New("lists and objects cannot be compared")

// same is equality of type and value; two lists or two objects cannot be compared.
func same(a, b any) (bool, error) {
	switch a.(type) {
	case []any:
		if _, ok := b.([]any); ok {
			return false, errCompare
		}
		return false, nil
	case map[string]any:
		if _, ok := b.(map[string]any); ok {
			return false, errCompare
		}
		return false, nil
	}
	switch b.(type) {
	case []any, map[string]any:
		return false, nil
	}
	return a == b, nil
}
