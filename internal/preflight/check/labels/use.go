package labels

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/cluster/selector/nodes"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// use is one place that selects nodes by their labels.
type use struct {
	subject  finding.Subject
	resource string // as kubectl takes it
	field    string // such as spec.nodeSelector
	text     string // the selector, for people to read
	keys     []string
	// picks reports whether it selects a node, after its keys are renamed.
	picks func(rename map[string]string, n *corev1.Node) bool
	// patch renames keys: operations of a JSON patch. It is nil if the field cannot be changed.
	patch func(rename map[string]string) []nodes.Operation
	// loss and gain are the consequences for nodes that are no longer selected, and for those that now are.
	loss, gain string
	// always blocks if any node is lost; otherwise only losing all nodes blocks.
	always bool
	// bad is why it cannot be parsed; it then selects nothing.
	bad error
}

// command returns the patch as a kubectl command.
func (u *use) command(operations []nodes.Operation) string {
	namespace := ""
	if u.subject.Namespace != "" {
		namespace = "-n " + shell.Word(u.subject.Namespace) + " "
	}
	return fmt.Sprintf("kubectl %spatch %s %s --type json -p %s",
		namespace, shell.Word(u.resource), shell.Word(u.subject.Name), shell.JSON(operations))
}

// calico makes a use of a selector in Calico's language; ok is false if there is none.
func calico(text, at string) (u use, ok bool) {
	if text == "" {
		return use{}, false
	}
	parsed, err := selector.Parse(text)
	if err != nil {
		return use{text: text, bad: err, picks: func(map[string]string, *corev1.Node) bool { return false }}, true
	}
	cache := map[string]*selector.Selector{}
	under := func(rename map[string]string) *selector.Selector {
		if len(rename) == 0 {
			return parsed
		}
		key := fmt.Sprint(rename)
		if cache[key] == nil {
			cache[key] = parsed.Rename(rename)
		}
		return cache[key]
	}
	return use{
		text: text, keys: parsed.Keys(),
		picks: func(rename map[string]string, n *corev1.Node) bool { return under(rename).Matches(n.Labels) },
		patch: func(rename map[string]string) []nodes.Operation {
			return []nodes.Operation{{Op: "replace", Path: at, Value: under(rename).Text()}}
		},
	}, true
}
