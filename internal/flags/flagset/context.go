package flagset

import (
	"encoding/json"
	"math"
	"unicode/utf8"
)

// flagdKey is what every context has without giving it: $flagd.flagKey and $flagd.timestamp.
const flagdKey = "$flagd"

// targetingKey is the subject that is bucketed.
const targetingKey = "targetingKey"

// Context is what a flag is evaluated for, prepared once for any number of evaluations.
type Context struct{ values map[string]any }

// NewContext prepares values, which are not to be changed afterwards. They are seen as their JSON is:
// numbers are float64, times are text. It fails on what JSON has no words for.
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

// maxPlain is how deep values are looked into here; deeper ones go through JSON, which finds cycles.
const maxPlain = 32

// isPlain says whether a value is what its JSON would be read as.
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
