package document

import (
	"reflect"

	"github.com/go-json-experiment/json"
	kjson "sigs.k8s.io/json"
)

// decode reads one JSON value into what target points to, as an API server does. The library that comes first takes half
// the time, and refuses what it might read in another way (names that come twice, bytes that are no UTF-8); what it
// refuses is decided by the API server's own, which also says what is wrong.
func decode(raw []byte, target any) error {
	if json.Unmarshal(raw, target) == nil {
		return nil
	}
	reflect.ValueOf(target).Elem().SetZero()
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, target)
}
