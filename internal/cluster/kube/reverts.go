package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// Reverts detects that another manager takes back what a run has written, such as a deployment tool that was not
// suspended. It compares objects with what was there before the run's last write to each; objects that are gone have no
// manager, and are left to the conditions of the steps. It is not safe for concurrent use.
type Reverts struct {
	Actor *Actor
	Steps []step.Step

	actions map[string]step.Action  // by step and ID
	intents map[string]*step.Action // inverses of actions that are under way, by the same
	last    map[step.Ref]change     // the last write to each object, if it has an inverse
	back    bool                    // the run goes back
	next    time.Time
	after   string // the last object that was compared
}

// change is a write and what reverts it.
type change struct{ does, inverse step.Action }

// tells reports whether the object can show that another manager took the change back. An object that did not exist
// before cannot: it is gone then.
func (c change) tells() bool {
	_, applies := c.does.Do.(step.Apply)
	return !applies || c.inverse.Op() == step.OpApply
}

const (
	// revertsEvery is the interval at which objects are compared, at most revertsMost of them, and for at most
	// revertsWithin.
	revertsEvery  = 10 * time.Second
	revertsMost   = 20
	revertsWithin = 5 * time.Second
)

// definitions is the group of CustomResourceDefinitions. They are not watched: an operator writes its own again until
// the plan has upgraded it (tigera/operator with -manage-crds), and a run that continues brings the right ones.
const definitions = "apiextensions.k8s.io"

// Learn takes records of the journal, in their order.
func (r *Reverts) Learn(records ...engine.Record) {
	if r.actions == nil {
		r.actions, r.intents, r.last = map[string]step.Action{}, map[string]*step.Action{}, map[step.Ref]change{}
		for _, st := range r.Steps {
			for _, action := range st.Actions {
				if write, writes := step.WriteOf(action); writes && write.GroupKind().Group != definitions {
					r.actions[st.ID+" "+action.ID] = action
				}
			}
		}
	}
	for _, record := range records {
		key := record.Step + " " + record.Action
		action, known := r.actions[key]
		write, _ := step.WriteOf(action)
		switch {
		case record.Event == engine.RollingBack || record.Event == engine.TakingBack:
			r.back = true
		case !known || record.Undo:
		case record.Event == engine.Intended:
			r.intents[key] = record.Inverse
			delete(r.last, write.Ref)
		case record.Event == engine.Acted && record.Result == engine.ResultDone && r.intents[key] != nil:
			if c := (change{action, *r.intents[key]}); c.tells() {
				r.last[write.Ref] = c
			}
			delete(r.intents, key)
		}
	}
}

// Found says which object is again as it was before the run wrote it, who wrote it, and what to do; "" if none is. It
// compares a few objects every ten seconds, one after another. Objects that cannot be read are compared later: an API
// server that does not answer must not keep the run from hearing a pause. A run that goes back is not watched.
func (r *Reverts) Found(ctx context.Context) string {
	if r.back || len(r.last) == 0 || r.Actor.Clock.Now().Before(r.next) {
		return ""
	}
	defer func() { r.next = r.Actor.Clock.Now().Add(revertsEvery) }()
	ctx, cancel := context.WithTimeout(ctx, revertsWithin)
	defer cancel()
	byName := map[string]step.Ref{}
	for ref := range r.last {
		byName[ref.APIVersion+" "+ref.String()] = ref
	}
	names := slices.Sorted(maps.Keys(byName))
	from, found := slices.BinarySearch(names, r.after)
	if found {
		from++
	}
	for i := range min(revertsMost, len(names)) {
		r.after = names[(from+i)%len(names)]
		ref := byName[r.after]
		object, err := r.Actor.get(ctx, ref)
		if err != nil && !apierrors.IsForbidden(err) {
			return ""
		}
		if err != nil || object == nil {
			continue
		}
		if by, at := lastWriter(object); by != "" && r.reverted(ctx, r.last[ref], object) {
			r.after = "" // the next run begins with the first
			return fmt.Sprintf("%s reverted what this run wrote: %s has its former content again (written at %s); "+
				"suspend "+
				"%s, then restore the change: %s; after that, resume",
				by, ref, at.UTC().Format(time.RFC3339), by, r.last[ref].again())
		}
	}
	return ""
}

// reverted reports whether an object is as it was before a change, and would change if it were made again.
func (r *Reverts) reverted(ctx context.Context, c change, now *unstructured.Unstructured) bool {
	switch do := c.does.Do.(type) {
	case step.Delete:
		return c.inverse.Op() == step.OpApply && sameContent(c.inverse.Object(), now)
	case step.Apply:
		if c.inverse.Op() != step.OpApply || !sameContent(c.inverse.Object(), now) ||
			part(do.Object.Object, now.Object) {
			return false
		}
		// Only the server knows what of the text it writes otherwise: quantities, defaults, fields of the status.
		again, err := r.Actor.apply(ctx, do.Object, true)
		return err == nil && !sameContent(again, now)
	case step.Patch:
		back, is := c.inverse.Do.(step.Patch)
		if !is {
			return false
		}
		text := jsonOf(now)
		before, err := jsonpatch.MergePatch(text, back.Merge)
		after, failed := jsonpatch.MergePatch(text, do.Merge)
		return err == nil && failed == nil && jsonpatch.Equal(text, before) && !jsonpatch.Equal(text, after)
	}
	return false
}

// sameContent reports whether two objects have the same content, apart from their metadata and status.
func sameContent(a, b *unstructured.Unstructured) bool {
	content := func(object *unstructured.Unstructured) json.RawMessage {
		kept := maps.Clone(object.Object)
		for _, field := range []string{"metadata", "status", "apiVersion", "kind"} {
			delete(kept, field)
		}
		return jsonOf(kept)
	}
	return jsonpatch.Equal(content(a), content(b))
}

// again is how a person makes a change again.
func (c change) again() string {
	write, _ := step.WriteOf(c.does)
	words := []string{"kubectl"}
	if write.Namespace != "" {
		words = append(words, "-n", write.Namespace)
	}
	object := strings.ToLower(write.GroupKind().String()) + "/" + write.Name
	switch do := c.does.Do.(type) {
	case step.Delete:
		return shell.Words(append(words, "delete", object)...)
	case step.Patch:
		return shell.Words(append(words, "patch", object, "--type", "merge", "-p", string(do.Merge))...)
	}
	return "apply the object of the action " + c.does.ID + ", which `theseus plan show` prints"
}
