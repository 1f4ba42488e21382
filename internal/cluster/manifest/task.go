package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Lease is the name of the lock in Theseus' namespace; there is one lock per cluster.
const Lease = "theseus"

// maxLabel is the maximum length of a label's value.
const maxLabel = 63

// Task makes the task that asks a node's agent to run a verb, in an epoch of the lock. It fails if the arguments are
// not JSON.
func Task(name, node, verb string, args json.RawMessage, epoch int64) (*unstructured.Unstructured, error) {
	if len(args) > 0 && !json.Valid(args) {
		return nil, fmt.Errorf("the arguments of task %s (%s) are not JSON", name, verb)
	}
	return convert(&v1alpha1.NodeTask{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "NodeTask"},
		ObjectMeta: meta(name, LabelNode, NodeValue(node)),
		Spec:       v1alpha1.NodeTaskSpec{Node: node, Verb: verb, Args: args, Epoch: epoch},
	}), nil
}

// NodeValue is a node's name as the value of LabelNode: names that are too long for a label are truncated and end in a
// hash.
func NodeValue(node string) string {
	if len(node) <= maxLabel {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	suffix := "-" + hex.EncodeToString(sum[:8])
	return node[:maxLabel-len(suffix)] + suffix
}
