package cnitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// installed tells what a target is, for people: how its joint form and its own form differ from the user's manifest,
// and what comes besides.
func installed(t *testing.T, manifest []unstructured.Unstructured, target *cni.Target) string {
	t.Helper()
	var to strings.Builder
	joint := slices.Concat(target.Definitions, target.Objects)
	fmt.Fprintf(&to, "# beside another network, against the manifest\n%s", differences(t, manifest, joint))
	fmt.Fprintf(&to, "\n# in its own form, against the manifest\n%s\n",
		differences(t, manifest, ownForm(t, joint, target)))
	for i := range target.Extras {
		fmt.Fprintf(&to, "extra %s\n", line(t, target.Extras[i].Object))
	}
	for _, ref := range target.Discard {
		fmt.Fprintf(&to, "discarded %s\n", ref)
	}
	fmt.Fprintf(&to, "configuration %s\n", line(t, target.Conf))
	if target.Guard != nil {
		fmt.Fprintf(&to, "guard %s\n", line(t, target.Guard))
	}
	described := target.Installation
	described.Parts = nil // its objects, as the suite holds
	fmt.Fprintf(&to, "installation %s\n", asJSON(t, described))
	return to.String()
}

// ownForm is what is there when the actions that end the joint form were done.
func ownForm(t *testing.T, joint []unstructured.Unstructured, target *cni.Target) []unstructured.Unstructured {
	t.Helper()
	now := map[step.Ref]unstructured.Unstructured{}
	for i := range joint {
		now[step.RefOf(&joint[i])] = joint[i]
	}
	for _, action := range slices.Concat(target.Final, target.HandOver) {
		switch do := action.Do.(type) {
		case step.Apply:
			now[step.RefOf(do.Object)] = *do.Object
		case step.Patch:
			before := now[do.Ref]
			data, err := jsonpatch.MergePatch([]byte(line(t, before.Object)), do.Merge)
			if err != nil {
				t.Fatalf("%s: %v", action.Title, err)
			}
			after := unstructured.Unstructured{}
			if err := json.Unmarshal(data, &after.Object); err != nil {
				t.Fatal(err)
			}
			now[do.Ref] = after
		case step.Wait: // for a workload of the target in its own form
			if _, there := now[do.Condition.Ref()]; !there {
				t.Errorf("%s: it does not exist", action.Title)
			}
		default:
			t.Fatalf("%s: %s ends no joint form", action.Title, action.Op())
		}
	}
	for _, ref := range target.Discard {
		delete(now, ref)
	}
	return slices.Collect(maps.Values(now))
}

// differences are those of two sets of objects, field by field; objects that differ in the same way are told together.
func differences(t *testing.T, before, after []unstructured.Unstructured) string {
	t.Helper()
	fields := func(objects []unstructured.Unstructured) map[string]map[string]string {
		all := map[string]map[string]string{}
		for i := range objects {
			one := map[string]string{}
			flatten(t, one, "", objects[i].Object)
			all[step.RefOf(&objects[i]).String()] = one
		}
		return all
	}
	old, now := fields(before), fields(after)
	names := maps.Clone(old)
	maps.Copy(names, now)
	alike := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		paths := maps.Clone(old[name])
		if paths == nil {
			paths = map[string]string{}
		}
		maps.Copy(paths, now[name])
		var told strings.Builder
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			was, had := old[name][path]
			is, has := now[name][path]
			if had && (!has || was != is) {
				fmt.Fprintf(&told, "  - %s: %s\n", path, was)
			}
			if has && (!had || was != is) {
				fmt.Fprintf(&told, "  + %s: %s\n", path, is)
			}
		}
		if told.Len() > 0 {
			alike[told.String()] = append(alike[told.String()], name)
		}
	}
	var groups []string
	for told, names := range alike {
		groups = append(groups, strings.Join(names, "\n")+"\n"+told)
	}
	slices.Sort(groups)
	return strings.Join(groups, "")
}

// flatten writes the fields of a value by their paths. What is in a list goes by its name, where all that is in it has
// one.
func flatten(t *testing.T, to map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if strings.ContainsAny(key, "./") {
				key = "[" + key + "]"
			}
			flatten(t, to, strings.TrimPrefix(path+"."+key, "."), inner)
		}
		if len(value) > 0 || path == "metadata.labels" { // to have none is to have an empty set of them
			return
		}
	case []any:
		named := map[string]any{}
		for _, item := range value {
			if fields, ok := item.(map[string]any); ok {
				if name, ok := fields["name"].(string); ok {
					rest := maps.Clone(fields)
					delete(rest, "name")
					named[name] = rest
				}
			}
		}
		if len(value) > 0 && len(named) == len(value) {
			for name, item := range named {
				flatten(t, to, path+"["+name+"]", item)
			}
			return
		}
	}
	to[path] = line(t, value)
}

// line is a value as JSON in one line.
func line(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
