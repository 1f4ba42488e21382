package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// snapshotSink finds the sink for a list of a snapshot, by its JSON name.
func (b *Builder) snapshotSink(field string) (sink, bool) {
	resources := map[string]string{
		"nodes": "nodes", "namespaces": "namespaces", "pods": "pods", "services": "services",
		"configMaps": "configmaps", "daemonSets": "daemonsets", "deployments": "deployments",
		"replicaSets": "replicasets", "statefulSets": "statefulsets", "jobs": "jobs",
		"budgets": "poddisruptionbudgets", "networkPolicies": "networkpolicies", "other": "",
	}
	resource, ok := resources[field]
	if !ok {
		return sink{}, false
	}
	for _, s := range b.sinks {
		if s.resource == resource {
			return s, true
		}
	}
	return sink{}, false
}

// addSnapshot adds the fields of a Theseus snapshot. It keeps the snapshot's sources.
func (b *Builder) addSnapshot(raw []byte, at place) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return at.fail("", plainJSON(err))
	}
	at.silent = true
	for name, list := range fields {
		s, ok := b.snapshotSink(name)
		if !ok {
			continue
		}
		delete(fields, name)
		var elements []json.RawMessage
		if err := json.Unmarshal(list, &elements); err != nil {
			return at.fail("", fmt.Errorf("%s: %w", name, plainJSON(err)))
		}
		for _, element := range elements {
			if err := s.add(element, at); err != nil {
				return err
			}
		}
	}
	version := ""
	if text := textOf(fields["theseus"]); text != "" {
		version = " (" + text + ")"
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{"apiVersion", "kind", "theseus", "takenAt", "uid", "kubernetes", "facts",
			"rights", "sources"}, name) {
			b.note("%s:%d: ignoring the unknown field %q of the snapshot: a newer theseus%s wrote it",
				at.file, at.line, name, version)
		}
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return at.fail("", err)
	}
	var taken cluster.Snapshot
	if err := decode(rest, &taken); err != nil {
		return at.fail("take the snapshot again with: theseus snapshot -o FILE",
			fmt.Errorf("Snapshot: %w", plainJSON(err)))
	}
	b.takeOver(&taken)
	return nil
}

// takeOver copies the fields of a snapshot that are not lists of objects.
func (b *Builder) takeOver(taken *cluster.Snapshot) {
	s := b.snapshot
	s.Theseus, s.TakenAt, s.UID, s.Kubernetes = taken.Theseus, taken.TakenAt, taken.UID, taken.Kubernetes
	s.Facts = append(s.Facts, taken.Facts...)
	s.Rights = append(s.Rights, taken.Rights...)
	s.Sources = append(s.Sources, taken.Sources...)
}

// checkOwn refuses Theseus documents of an unsupported version.
func checkOwn(head header, at place) error {
	if head.Kind != cluster.Kind || head.APIVersion == v1alpha1.APIVersion ||
		!strings.HasPrefix(head.APIVersion, v1alpha1.Group+"/") {
		return nil
	}
	return at.fail("use the version of theseus that wrote it, or take the snapshot again with this one",
		errors.New("a snapshot of version "+head.APIVersion+": this theseus reads "+v1alpha1.APIVersion))
}
