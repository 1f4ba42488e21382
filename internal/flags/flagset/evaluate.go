package flagset

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
)

// Reason says how a value came about.
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
	// Value is a bool, float64, string, or what JSON has for objects and lists; nil when the caller's default
	// stands. It belongs to the set and is not to be changed.
	Value any
	// Variant is the name of the value; empty when the caller's default stands.
	Variant string
	Reason  Reason
	// Code and Message are empty when nothing is wrong.
	Code    Code
	Message string
	// Metadata is the set's with the flag's over it; it belongs to the set and is not to be changed.
	Metadata map[string]any
}

// Default reports whether the value of the caller stands: the flag is disabled, has no default, or failed.
func (r Result) Default() bool {
	return r.Code != "" || r.Reason == Disabled || r.Reason == Default && r.Variant == ""
}

func (r Result) fail(code Code, format string, args ...any) Result {
	r.Reason, r.Code, r.Message = Failed, code, fmt.Sprintf(format, args...)
	r.Value = nil
	return r
}

// Step is one operator's work, in the order of the evaluation.
type Step struct {
	Operator string `json:"operator"`
	// Arguments are nil for operators that decide what they evaluate.
	Arguments any `json:"arguments,omitempty"`
	Result    any `json:"result"`
	// Bucket is set where a subject was dealt into a bucket.
	Bucket *Bucket `json:"bucket,omitempty"`
}

// Bucket is where a subject fell: Bucket of Total, within [Start, End).
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
		return result.fail(General, "flag %q: its rule yields %q, which is no variant of it", key, variant)
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

// variantName is the name that a rule's result stands for: its JSON without quotes.
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

// isSimple says that text is the same in JSON, but for its quotes.
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

// The types of OpenFeature; Any takes what there is.
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

// As checks the value's type: a value of another one is TYPE_MISMATCH. An Integer is an int64 afterwards, and
// only a number that loses nothing by it is one.
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
	return r.fail(TypeMismatch, "flag %q: its variant %q is no %s", r.Key, r.Variant, kind)
}

// mergedMetadata puts a flag's metadata over the set's; null takes a key away.
func mergedMetadata(set, own map[string]any) map[string]any {
	merged := maps.Clone(set)
	if merged == nil {
		merged = map[string]any{}
	}
	maps.Copy(merged, own)
	maps.DeleteFunc(merged, func(_ string, v any) bool { return v == nil })
	return merged
}
