package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// list is a List being read, item by item. Its kind may come after its items.
type list struct {
	builder *Builder
	file    string
	items   bool // it has a list of items, maybe an empty one
	count   int
	// apiVersion and kind are the list's own, if they came before its items.
	apiVersion, kind string
	// pending are items without a kind, as in typed lists (PodList).
	pending []pendingItem
}

type pendingItem struct {
	raw []byte
	at  place
}

func (l *list) add(raw []byte, at place) error {
	l.count++
	var head header
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return l.builder.noObject(head, at)
	}
	if err := decode(raw, &head); err != nil {
		return at.fail("", plainJSON(err))
	}
	if head.Kind != "" || head.APIVersion != "" {
		return l.builder.addParsed(head, raw, at)
	}
	if kind, typed := strings.CutSuffix(l.kind, "List"); typed && kind != "" && l.apiVersion != "" {
		return l.addTyped(raw, at, kind)
	}
	l.pending = append(l.pending, pendingItem{bytes.Clone(raw), at})
	return nil
}

// addTyped adds an item that has no kind.
func (l *list) addTyped(raw []byte, at place, kind string) error {
	if s := l.builder.sinkFor(l.apiVersion, kind); s.resource != "" {
		return s.add(raw, at)
	}
	typed, err := withKind(raw, l.apiVersion, kind)
	if err != nil {
		return at.fail("", plainJSON(err))
	}
	return l.builder.addObject(typed, at)
}

// end is called at the end of the document.
func (l *list) end(raw []byte, at place) error {
	var head header
	if err := decode(raw, &head); err != nil {
		return at.fail("", plainJSON(err))
	}
	kind, isList := strings.CutSuffix(head.Kind, "List")
	if !isList && head.Kind == "" && l.count > 0 && !l.builder.lenient {
		return at.fail("kubectl ends a List with its kind: write the file again",
			errors.New("a List without a kind: the file is truncated"))
	}
	if !isList {
		return l.builder.noObject(head, at)
	}
	if l.count == 0 {
		l.builder.empty(head.APIVersion, kind, l.file)
		return nil
	}
	l.apiVersion = head.APIVersion
	for _, item := range l.pending {
		if kind == "" {
			return l.builder.noObject(header{}, item.at)
		}
		if err := l.addTyped(item.raw, item.at, kind); err != nil {
			return err
		}
	}
	return nil
}

// maxLists is the maximum nesting depth of Lists: a List is read as many times as it is deep.
const maxLists = 8

// addItems adds the items of a List that was read as a whole.
func (b *Builder) addItems(head header, at place) error {
	if b.within++; b.within > maxLists {
		return at.fail("write the objects one after another", fmt.Errorf("Lists nested more than %d deep", maxLists))
	}
	defer func() { b.within-- }()
	l := list{builder: b, file: at.file, items: true}
	for _, raw := range head.Items {
		if err := l.add(raw, at); err != nil {
			return err
		}
	}
	return l.close(head, at)
}

// rest reads the rest of a List as one text: the items and the other fields.
func (l *list) rest(raw []byte, at place) error {
	var head header
	if err := decode(raw, &head); err != nil {
		return at.fail("", plainJSON(err))
	}
	for _, item := range head.Items {
		if err := l.add(item, at); err != nil {
			return err
		}
	}
	return l.close(head, at)
}

func (l *list) close(head header, at place) error {
	raw, err := json.Marshal(map[string]string{"apiVersion": head.APIVersion, "kind": head.Kind})
	if err != nil {
		return at.fail("", err)
	}
	return l.end(raw, at)
}

// empty records that the cluster has no object of a resource. An empty PodList, as the API server returns it, names its
// kind; for an empty List, as kubectl prints it, only the file name can tell (networkpolicies.yaml).
func (b *Builder) empty(apiVersion, kind, file string) {
	if kind != "" {
		resource := b.sinkFor(apiVersion, kind).resource
		if resource == "" {
			resource = resourceName(schema.FromAPIVersionAndKind(apiVersion, kind))
		}
		b.origin(resource, place{file: file})
		return
	}
	name := strings.ToLower(path.Base(strings.ReplaceAll(file, `\`, "/")))
	name = strings.TrimSuffix(name, path.Ext(name))
	for _, resource := range registrations {
		if name == resource {
			b.origin(name, place{file: file})
			return
		}
	}
	groups := []string{"crd.projectcalico.org", "cilium.io"} // as in ippools.crd.projectcalico.org
	for _, policies := range cluster.PolicyKinds() {
		groups = append(groups, policies.Group)
	}
	for _, group := range groups {
		if strings.HasSuffix(name, "."+group) {
			b.origin(name, place{file: file})
			return
		}
	}
	stem, _, _ := strings.Cut(name, ".")
	for _, s := range b.sinks {
		if s.resource != "" && stem == s.resource {
			b.origin(s.resource, place{file: file})
			return
		}
	}
	b.note("%s: an empty List does not name its resource; name the file after the resource, as in "+
		"networkpolicies.yaml or adminnetworkpolicies.policy.networking.k8s.io.yaml, or or print it with its kind: "+
		"kubectl get --raw PATH, as in /apis/networking.k8s.io/v1/networkpolicies", file)
}

// registrations are resources without their own field in a snapshot, by the short names that checks use.
var registrations = []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	"customresourcedefinitions", "apiservices", "persistentvolumes", "servicecidrs",
	"resourcequotas", "limitranges"}

func withKind(raw []byte, apiVersion, kind string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, errNoObject
	}
	fields["apiVersion"], _ = json.Marshal(apiVersion)
	fields["kind"], _ = json.Marshal(kind)
	return json.Marshal(fields)
}

// noObject handles a document that is not a Kubernetes object.
func (b *Builder) noObject(head header, at place) error {
	switch {
	case head.ServerVersion.GitVersion != "":
		b.snapshot.Kubernetes = head.ServerVersion.GitVersion
		return nil
	case b.lenient:
		b.note("%s:%d: skipped: %v", at.file, at.line, errNoObject)
		return nil
	case head.Kind != "" && head.APIVersion != "":
		return at.fail("", fmt.Errorf("a %s with items: only Lists have items", head.Kind))
	}
	return at.fail("give a snapshot file, or the output of `kubectl get -A -o yaml`", errNoObject)
}

// forOthers are Theseus' own documents that do not describe a cluster, with the command or option that reads them.
var forOthers = map[string]string{"Plan": "theseus apply", "Change": "--change", "AcceptedFindings": "--accepted"}

// noEvidence refuses or skips such a document.
func (b *Builder) noEvidence(kind, takes string, at place) error {
	err := fmt.Errorf("a %s does not describe a cluster: it is for %s", kind, takes)
	if b.lenient {
		b.note("%s:%d: skipped: %v", at.file, at.line, err)
		return nil
	}
	return at.fail("give a snapshot file, or the output of `kubectl get -A -o yaml`", err)
}

// plainJSON returns the message of a JSON error without Go's type names.
func plainJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s: a %s is not a valid %s", wrong.Field, wrong.Value, wrong.Type)
	}
	message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "cannot unmarshal: ")
	return errors.New(message)
}
