package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// list is a List being read, item by item. Its kind may come after its items.
type list struct {
	builder *Builder
	file    string
	items   bool // there is a list of items, maybe an empty one
	count   int
	// apiVersion and kind are the list's own, where they came before its items.
	apiVersion, kind string
	// pending are items without a kind of their own, as typed lists (PodList) have them.
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

// addTyped takes an item that carries no kind of its own.
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

// end is called with the rest of the document.
func (l *list) end(raw []byte, at place) error {
	var head header
	if err := decode(raw, &head); err != nil {
		return at.fail("", plainJSON(err))
	}
	kind, isList := strings.CutSuffix(head.Kind, "List")
	if !isList && head.Kind == "" && l.count > 0 && !l.builder.lenient {
		return at.fail("kubectl ends a List with its kind: write the file again", errors.New("a List without a kind: the file is cut short"))
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

// maxLists is how deep Lists may be within Lists: each is read as often as it is deep.
const maxLists = 8

// addItems takes a List that is at hand as a whole.
func (b *Builder) addItems(head header, at place) error {
	if b.within++; b.within > maxLists {
		return at.fail("write the objects one after another", fmt.Errorf("more than %d Lists in one another", maxLists))
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

// rest takes the rest of a List as one text: items, and what is outside of them.
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

// empty notes that a resource was looked at and there is none of it: an empty PodList, as the API server gives it, says so itself; of
// an empty List, which is what kubectl prints, only the file's name can tell (networkpolicies.yaml).
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
	for _, group := range []string{".projectcalico.org", ".cilium.io"} { // as in ippools.crd.projectcalico.org
		if strings.HasSuffix(name, group) {
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
	b.note("%s: an empty List does not say of what; name the file after the resource, as in networkpolicies.yaml, or "+
		"print it so that it says so: kubectl get --raw PATH, as in /apis/networking.k8s.io/v1/networkpolicies", file)
}

// registrations are resources without a field of their own in a snapshot, by the bare names that checks ask for.
var registrations = []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "customresourcedefinitions", "apiservices",
	"persistentvolumes", "servicecidrs"}

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

// noObject deals with a document that is no Kubernetes object.
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
	return at.fail("give a snapshot file, or what `kubectl get -A -o yaml` prints", errNoObject)
}

// forOthers are Theseus' own documents that say nothing of a cluster, and what takes them.
var forOthers = map[string]string{"Plan": "theseus apply", "Change": "--change", "AcceptedFindings": "--accepted"}

// noEvidence refuses such a document, or leaves it out.
func (b *Builder) noEvidence(kind, takes string, at place) error {
	err := fmt.Errorf("a %s says nothing of a cluster: it is for %s", kind, takes)
	if b.lenient {
		b.note("%s:%d: skipped: %v", at.file, at.line, err)
		return nil
	}
	return at.fail("give a snapshot file, or what `kubectl get -A -o yaml` prints", err)
}

// plainJSON says what is wrong with JSON without Go's names around it.
func plainJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s: a %s where a %s is expected", wrong.Field, wrong.Value, wrong.Type)
	}
	message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "json: "), "cannot unmarshal: ")
	return errors.New(message)
}
