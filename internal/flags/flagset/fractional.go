package flagset

import (
	"math"

	"github.com/twmb/murmur3"
)

// share is one bucket: its result and its weight.
type share struct {
	value  any
	weight uint64
}

// fractional assigns subjects to buckets by the hash of a text: the same text always maps to the same bucket.
// If a rule does not give a text, it hashes the flag's key with the context's targetingKey, so that flags are
// independent of each other.
//
// A bucket is [value], of weight 1, or [value, weight]. Weights are whole; a negative one counts as 0, and the
// total is at most 2^31-1. Invalid buckets yield null, and so the default.
func fractional(s *scope, args any) (any, error) {
	list, ok := args.([]any)
	if !ok || len(list) == 0 {
		return nil, nil
	}
	context, ok := s.data.(map[string]any)
	if !ok {
		return nil, nil
	}
	subject, list := bucketBy(s, context, list)
	shares, total := weigh(list)
	if total == 0 {
		return nil, nil
	}
	hash := murmur3.StringSum32(subject)
	bucket := uint64(hash) * total >> 32
	var end uint64
	for _, part := range shares {
		start := end
		if end += part.weight; bucket < end {
			if s.run.trace != nil {
				s.run.trace(Step{Operator: "bucket", Arguments: subject, Result: part.value,
					Bucket: &Bucket{Hash: hash, Bucket: bucket, Start: start, End: end, Total: total}})
			}
			return part.value, nil
		}
	}
	return nil, nil
}

// bucketBy returns the text to hash and the buckets; no buckets if there is nothing to hash.
func bucketBy(s *scope, context map[string]any, list []any) (string, []any) {
	if own, ok := list[0].(string); ok {
		return own, list[1:]
	}
	if list[0] == nil {
		list = list[1:]
	}
	subject, _ := context[targetingKey].(string)
	if subject == "" {
		return "", nil
	}
	return flagKeyIn(s, context) + subject, list
}

// flagKeyIn is the flag's key if the data is the context. An element of a list may contain a $flagd of its own, which
// is used if the element is the whole context.
func flagKeyIn(s *scope, data map[string]any) string {
	if s.root {
		return s.run.key
	}
	own, _ := data[flagdKey].(map[string]any)
	key, _ := own["flagKey"].(string)
	return key
}

// weigh parses the buckets; the total is 0 if they are invalid.
func weigh(list []any) (shares []share, total uint64) {
	shares = make([]share, len(list))
	for i, element := range list {
		part, ok := element.([]any)
		if !ok || len(part) == 0 {
			return nil, 0
		}
		switch part[0].(type) {
		case nil, string, bool, float64:
		default:
			return nil, 0
		}
		weight := 1.0
		if len(part) > 1 && part[1] != nil {
			if weight, ok = part[1].(float64); !ok {
				return nil, 0
			}
		}
		if weight != math.Trunc(weight) || weight > math.MaxInt32 || weight < math.MinInt64 {
			return nil, 0
		}
		shares[i] = share{part[0], uint64(max(weight, 0))}
		total += shares[i].weight
	}
	if total > math.MaxInt32 {
		return nil, 0
	}
	return shares, total
}
