package document

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// place is the position of a document.
type place struct {
	file string
	line int
	// silent is true for objects of a snapshot, which has its own sources.
	silent bool
}

func (p place) fail(hint string, err error) error {
	return &Error{File: p.file, Line: p.line, Err: err, Advice: hint}
}

// sink collects the objects of one kind.
type sink struct {
	resource string
	kind     string
	versions []string // group/version, all with the same schema
	add      func(raw []byte, at place) error
	// end stores the collected objects in the snapshot; it may be nil.
	end func()
}

// makeSinks lists the kinds that a snapshot has fields for.
func (b *Builder) makeSinks() []sink {
	s := b.snapshot
	return []sink{
		into(b, "nodes", "Node", &s.Nodes, "v1"),
		into(b, "namespaces", "Namespace", &s.Namespaces, "v1"),
		into(b, "pods", "Pod", &s.Pods, "v1"),
		into(b, "services", "Service", &s.Services, "v1"),
		into(b, "configmaps", "ConfigMap", &s.ConfigMaps, "v1"),
		into(b, "daemonsets", "DaemonSet", &s.DaemonSets, "apps/v1"),
		into(b, "deployments", "Deployment", &s.Deployments, "apps/v1"),
		into(b, "replicasets", "ReplicaSet", &s.ReplicaSets, "apps/v1"),
		into(b, "statefulsets", "StatefulSet", &s.StatefulSets, "apps/v1"),
		into(b, "jobs", "Job", &s.Jobs, "batch/v1"),
		into(b, "poddisruptionbudgets", "PodDisruptionBudget", &s.Budgets, "policy/v1", "policy/v1beta1"),
		into(b, "networkpolicies", "NetworkPolicy", &s.NetworkPolicies, "networking.k8s.io/v1", "extensions/v1beta1"),
		b.otherSink(),
	}
}

// object is a pointer to a T that implements metav1.Object.
type object[T any] interface {
	*T
	metav1.Object
}

// into is the sink of one field of the snapshot. Of two objects with one name the later wins.
func into[T any, P object[T]](b *Builder, resource, kind string, field *[]T, versions ...string) sink {
	at := map[string]*T{}
	var kept chunks[T]
	var alike sharer
	add := func(raw []byte, where place) error {
		decoded := kept.next()
		if err := decode(raw, decoded); err != nil {
			return where.fail("compare it with: kubectl explain "+resource, fmt.Errorf("%s: %w", kind, plainJSON(err)))
		}
		o := P(decoded)
		if o.GetName() == "" {
			return where.fail("", fmt.Errorf("%s without metadata.name", kind))
		}
		b.origin(resource, where)
		if kind == "ConfigMap" && !cluster.IsSystemNamespace(o.GetNamespace()) {
			b.ignored["ConfigMaps of other namespaces"]++
			return nil
		}
		if o.GetNamespace() == "" && !where.silent && kind != "Node" && kind != "Namespace" {
			o.SetNamespace(metav1.NamespaceDefault)
			b.note("%s:%d: %s %s has no namespace: using default, like kubectl",
				where.file, where.line, kind, o.GetName())
		}
		cluster.TrimObject(o)
		alike.share(o)
		key := o.GetNamespace() + "/" + o.GetName()
		if earlier, twice := at[key]; twice {
			b.note("%s:%d: duplicate %s %s: using this one", where.file, where.line, kind, strings.TrimPrefix(key, "/"))
			*earlier = *decoded
			return nil
		}
		at[key] = decoded
		kept.keep()
		return nil
	}
	return sink{resource: resource, kind: kind, versions: versions, add: add, end: func() {
		*field, at = kept.all(), map[string]*T{}
	}}
}

// chunks collects values, which may be large, without copying them when it grows.
type chunks[T any] struct {
	full    [][]T
	current []T // its length is the number of values kept
}

// next returns the slot for the next value; it is the same slot until keep is called.
func (c *chunks[T]) next() *T {
	const most = 512
	if len(c.current) == cap(c.current) {
		if len(c.current) > 0 {
			c.full = append(c.full, c.current)
		}
		c.current = make([]T, 0, min(most, max(8, 2*len(c.current))))
	}
	place := &c.current[:len(c.current)+1][len(c.current)]
	*place = *new(T)
	return place
}

func (c *chunks[T]) keep() { c.current = c.current[:len(c.current)+1] }

// all returns the values in one slice, nil if there are none, and empties the chunks.
func (c *chunks[T]) all() []T {
	joined := slices.Concat(append(c.full, c.current)...)
	*c = chunks[T]{}
	return joined
}

// otherSink collects all other objects, by group, kind, namespace and name.
func (b *Builder) otherSink() sink {
	at := map[string]int{}
	return sink{add: func(raw []byte, where place) error {
		var decoded unstructured.Unstructured
		if err := decoded.UnmarshalJSON(raw); err != nil {
			return where.fail("", plainJSON(err))
		}
		kind := decoded.GroupVersionKind()
		if kind.Kind == "Secret" && kind.Group == "" {
			b.ignored["Secrets"]++
			return nil
		}
		b.origin(resourceName(kind), where)
		key := strings.Join([]string{kind.Group, kind.Kind, decoded.GetNamespace(), decoded.GetName()}, "/")
		if i, twice := at[key]; twice {
			b.note("%s:%d: duplicate %s %s: using this one", where.file, where.line, kind.Kind, decoded.GetName())
			b.snapshot.Other[i] = decoded
			return nil
		}
		at[key] = len(b.snapshot.Other)
		b.snapshot.Other = append(b.snapshot.Other, decoded)
		return nil
	}}
}

// resourceName guesses the plural of a kind as Kubernetes does by default. Well-known registrations have short names,
// as in a live snapshot.
func resourceName(kind schema.GroupVersionKind) string {
	plural := strings.ToLower(kind.Kind)
	switch {
	case strings.HasSuffix(plural, "s"), strings.HasSuffix(plural, "x"):
		plural += "es"
	case strings.HasSuffix(plural, "y"):
		plural = strings.TrimSuffix(plural, "y") + "ies"
	default:
		plural += "s"
	}
	if kind.Kind == "ServiceCIDR" {
		return plural
	}
	switch kind.Group {
	case "", "apiextensions.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io":
		return plural
	}
	return plural + "." + kind.Group
}

// addObject passes one object to the sink of its kind. An object in a typed list (PodList) has no kind of its own: it
// gets the list's.
func (b *Builder) addObject(raw []byte, at place) error {
	var head header
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return b.noObject(head, at)
	}
	if err := decode(raw, &head); err != nil {
		return at.fail("", plainJSON(err))
	}
	return b.addParsed(head, raw, at)
}

// addParsed passes an object whose header was already read to the sink of its kind.
func (b *Builder) addParsed(head header, raw []byte, at place) error {
	switch {
	case head.Kind == "" || head.APIVersion == "":
		return b.noObject(head, at)
	case strings.HasSuffix(head.Kind, "List") && head.Items != nil:
		return b.addItems(head, at)
	}
	if err := checkOwn(head, at); err != nil {
		return err
	}
	if takes, ok := forOthers[head.Kind]; ok && head.APIVersion == v1alpha1.APIVersion {
		return b.noEvidence(head.Kind, takes, at)
	}
	if head.Kind == cluster.Kind && head.APIVersion == v1alpha1.APIVersion {
		return b.addSnapshot(raw, at)
	}
	return b.sinkFor(head.APIVersion, head.Kind).add(raw, at)
}

func (b *Builder) sinkFor(apiVersion, kind string) sink {
	for _, s := range b.sinks {
		if s.kind != kind {
			continue
		}
		for _, version := range s.versions {
			if version == apiVersion {
				return s
			}
		}
	}
	return b.sinks[len(b.sinks)-1]
}

// header has the fields that identify the type of a document.
type header struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Items      []rawObject `json:"items"`
	// ServerVersion is in the output of `kubectl version -o yaml`.
	ServerVersion struct {
		GitVersion string `json:"gitVersion"`
	} `json:"serverVersion"`
}

var errNoObject = errors.New("not a Kubernetes object: apiVersion and kind are missing")
