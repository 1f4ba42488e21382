package flagset

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
)

// Reason says how a value was determined.
type Reason string

// The reasons of flagd; it has no SPLIT.
const (
	Static         Reason = "STATIC"
	Default        Reason = "DEFAULT"
	TargetingMatch Reason = "TARGETING_MATCH"
	Disabled       Reason = "DISABLED"
	Failed         Reason = "ERROR"
)

// Code says what went wrong.
type Code string

// The error codes of OpenFeature that an evaluation yields.
const (
	FlagNotFound   Code = "FLAG_NOT_FOUND"
	ParseError     Code = "PARSE_ERROR"
	TypeMismatch   Code = "TYPE_MISMATCH"
	General        Code = "GENERAL"
	InvalidContext Code = "INVALID_CONTEXT"
)

// Result is the outcome of one evaluation.
type Result struct {
	Key string
	// Value is a bool, float64, string, or a decoded JSON object or list; nil if the caller's default applies.
	// It belongs to the set and must not be modified.
	Value any
	// Variant is the name of the value; empty if the caller's default applies.
	Variant string
	Reason  Reason
	// Code and Message are empty if there is no error.
	Code    Code
	Message string
	// Metadata is the set's, overridden by the flag's; it belongs to the set and must not be modified.
	Metadata map[string]any
}

// Default reports whether the caller's default applies: the flag is disabled, has no default variant, or failed.
func (r Result) Default() bool {
	return r.Code != "" || r.Reason == Disabled || r.Reason == Default && r.Variant == ""
}

func (r Result) fail(code Code, format string, args ...any) Result {
	r.Reason, r.Code, r.Message = Failed, code, fmt.Sprintf(format, args...)
	r.Value = nil
	return r
}

// Step is the evaluation of one operator; steps are in evaluation order.
type Step struct {
	Operator string `json:"operator"`
	// Arguments are nil for operators that choose which arguments they evaluate.
	Arguments any `json:"arguments,omitempty"`
	Result    any `json:"result"`
	// Bucket is set if the operator assigned the subject to a bucket.
	Bucket *Bucket `json:"bucket,omitempty"`
}

// Bucket is the position of a subject: Bucket of Total, within [Start, End).
type Bucket struct {
	Hash   uint32 `json:"hash"`
	Bucket uint64 `json:"bucket"`
	Start  uint64 `json:"start"`
	End    uint64 `json:"end"`
	Total  uint64 `json:"total"`
}

// Evaluate evaluates a flag at a time, in Unix seconds.
func (s *Set) Evaluate(key string, context Context, now int64) Result {
	return s.evaluate(key, context, now, nil)
}

// Explain evaluates a flag and calls trace for every operator.
func (s *Set) Explain(key string, context Context, now int64, trace func(Step)) Result {
	return s.evaluate(key, context, now, trace)
}

func (s *Set) evaluate(key string, context Context, now int64, trace func(Step)) Result {
	f, ok := s.flags[key]
	if !ok {
		return Result{Key: key, Metadata: s.metadata}.fail(FlagNotFound, "there is no flag %q", key)
	}
	result := Result{Key: key, Metadata: f.metadata}
	if f.disabled {
		result.Reason = Disabled
		return result
	}
	if f.rule == nil {
		return f.byDefault(result, Static)
	}
	r := run{key: key, now: now, left: maxWork, trace: trace}
	value, err := f.rule.eval(&scope{run: &r, data: any(context.values), root: true})
	if err != nil {
		return result.fail(ParseError, "flag %q: %v", key, err)
	}
	if value == nil {
		return f.byDefault(result, Default)
	}
	variant, err := variantName(value)
	if err != nil {
		return result.fail(ParseError, "flag %q: %v", key, err)
	}
	if result.Value, ok = f.variants[variant]; !ok {
		return result.fail(General, "flag %q: its rule yields %q, which is not one of its variants", key, variant)
	}
	result.Variant, result.Reason = variant, TargetingMatch
	return result
}

func (f *definition) byDefault(result Result, reason Reason) Result {
	if f.defaultVariant == "" {
		result.Reason = Default
		return result
	}
	result.Variant, result.Value, result.Reason = f.defaultVariant, f.variants[f.defaultVariant], reason
	return result
}

// variantName is the variant that a rule's result names: its JSON without quotes.
func variantName(value any) (string, error) {
	switch v := value.(type) {
	case bool:
		if v {
			return "true", nil
		}
		return "false", nil
	case string:
		if isSimple(v) {
			return v, nil
		}
	}
	raw, err := json.Marshal(value)
	return strings.ReplaceAll(strings.TrimSpace(string(raw)), `"`, ""), err
}

// isSimple reports whether text is the same in JSON, apart from the quotes.
func isSimple(t string) bool {
	for i := range len(t) {
		if c := t[i]; c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			return false
		}
	}
	return true
}

// Kind is the type that a caller asks for.
type Kind string

// The types of OpenFeature; Any accepts every type.
const (
	Boolean Kind = "boolean"
	String  Kind = "string"
	Integer Kind = "integer"
	Float   Kind = "float"
	Object  Kind = "object"
	Any     Kind = "any"
)

// maxInteger is the largest number up to which every integer is a float64.
const maxInteger = 1<<53 - 1

// As checks the value's type: a value of another type is a TYPE_MISMATCH. An Integer becomes an int64; a number that
// would lose precision is not an Integer.
func (r Result) As(kind Kind) Result {
	if r.Default() {
		return r
	}
	ok := false
	switch v := r.Value.(type) {
	case bool:
		ok = kind == Boolean
	case string:
		ok = kind == String
	case float64:
		ok = kind == Float
		if kind == Integer && v == math.Trunc(v) && math.Abs(v) <= maxInteger {
			r.Value, ok = int64(v), true
		}
	case map[string]any:
		ok = kind == Object
	}
	if ok || kind == Any && r.Value != nil {
		return r
	}
	return r.fail(TypeMismatch, "flag %q: its variant %q is not of type %s", r.Key, r.Variant, kind)
}

// mergedMetadata overrides the set's metadata with a flag's; null removes a key.
func mergedMetadata(set, own map[string]any) map[string]any {
	merged := maps.Clone(set)
	if merged == nil {
		merged = map[string]any{}
	}
	maps.Copy(merged, own)
	maps.DeleteFunc(merged, func(_ string, v any) bool { return v == nil })
	return merged
}
