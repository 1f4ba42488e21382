package ipam

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/preflight/check/checktest"
)

func TestExhaustion(t *testing.T) { checktest.Run(t, Exhaustion()) }

func TestStaleHandles(t *testing.T) { checktest.Run(t, StaleHandles()) }

// FuzzReadBlock holds that no block, however broken, makes the reader panic or count past its end.
func FuzzReadBlock(f *testing.F) {
	f.Add([]byte(
		`{"spec":{"cidr":"10.0.0.0/30","affinity":"host:a","allocations":[0,null,7,-1],"attributes":[{"secondary":{"pod":"p","namespace":"n"}}]}}`))
	f.Add(
		[]byte(`{"spec":{"cidr":"255.255.255.255/32","allocations":[0,0,0],"attributes":[{"secondary":{"pod":"p"}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var object unstructured.Unstructured
		if json.Unmarshal(data, &object.Object) != nil {
			return
		}
		if b, ok := readBlock(&object); ok && len(b.pods) > b.allocated {
			t.Errorf("%d pods hold %d addresses", len(b.pods), b.allocated)
		}
	})
}
