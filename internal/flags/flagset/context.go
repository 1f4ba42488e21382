package flagset

import (
	"encoding/json"
	"math"
	"unicode/utf8"
)

// flagdKey is the key that every context has implicitly: $flagd.flagKey and $flagd.timestamp.
const flagdKey = "$flagd"

// targetingKey identifies the subject for bucketing.
const targetingKey = "targetingKey"

// Context is the evaluation context of a flag, prepared once for any number of evaluations.
type Context struct{ values map[string]any }

// NewContext prepares values, which the caller must not modify afterwards. Values have the types that their JSON
// has: numbers are float64, times are text. It fails on values that JSON cannot represent.
func NewContext(values map[string]any) (Context, error) {
	if values == nil || isPlain(values, 0) {
		return Context{values}, nil
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return Context{}, err
	}
	var plain map[string]any
	err = json.Unmarshal(raw, &plain)
	return Context{plain}, err
}

// maxPlain is the depth up to which values are checked here; deeper ones are converted through JSON, which detects
// cycles.
const maxPlain = 32

// isPlain reports whether a value equals the result of decoding its JSON.
func isPlain(value any, depth int) bool {
	switch v := value.(type) {
	case nil, bool:
		return true
	case string:
		return utf8.ValidString(v)
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case []any:
		if v == nil || depth > maxPlain {
			return false
		}
		for _, element := range v {
			if !isPlain(element, depth+1) {
				return false
			}
		}
		return true
	case map[string]any:
		if v == nil || depth > maxPlain {
			return false
		}
		for key, element := range v {
			if !utf8.ValidString(key) || !isPlain(element, depth+1) {
				return false
			}
		}
		return true
	}
	return false
}
