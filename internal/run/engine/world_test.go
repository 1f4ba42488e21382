package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// world is a cluster in memory that means what it says: objects are stored, patched and deleted, node verbs
// change the node, and an evicted pod comes back on the network that its node serves. Every single change
// of an object is counted under the action that made it, and every point at which a process can die calls
// hook.
type world struct {
	objects map[string]map[string]any
	changes map[string]int // "action object" to how often it really changed
	gates   map[string]bool
	// compared are the changed nodes that each gate was told of.
	compared map[string][]string
	// broken are the actions that fail permanently.
	broken  map[string]bool
	hook    func(point string) error
	desire  v1alpha1.Desire
	askedBy string
	hinders string // what speaks against going on
	closed  bool   // no step may begin
	bake    int    // how often a gate looks, with a second in between
	clock   *clock
	first   map[string]string // what was seen before the first try of each eviction
}

func newWorld() *world {
	return &world{objects: map[string]map[string]any{}, changes: map[string]int{}, gates: map[string]bool{},
		compared: map[string][]string{}, broken: map[string]bool{}, first: map[string]string{},
		hook: func(string) error { return nil }}
}

func (w *world) clone() *world {
	c := newWorld()
	for key, object := range w.objects {
		c.objects[key] = copyOf(object)
	}
	maps.Copy(c.gates, w.gates)
	maps.Copy(c.broken, w.broken)
	return c
}

func copyOf(object map[string]any) map[string]any {
	return (&unstructured.Unstructured{Object: object}).DeepCopy().Object
}

func (w *world) hold(_ context.Context, next *step.Step) (engine.Hold, error) {
	if err := w.hook("before asking for " + next.ID); err != nil || !w.closed {
		return engine.Hold{}, err
	}
	return engine.Hold{Result: engine.ResultOutsideWindow, Cause: "no window is open for " + next.ID}, nil
}

// set makes the object so (nil: gone) and counts the change, if it is one.
func (w *world) set(action, key string, object map[string]any) error {
	old, exists := w.objects[key]
	if exists == (object != nil) && reflect.DeepEqual(old, object) {
		return nil
	}
	if w.broken[action] {
		return errBroken
	}
	if err := w.hook("before changing " + key); err != nil {
		return err
	}
	w.changes[action+" "+key]++
	if object == nil {
		delete(w.objects, key)
	} else {
		w.objects[key] = copyOf(object)
	}
	return w.hook("after changing " + key)
}

func opposite(verb string) string {
	return map[string]string{step.VerbJoin: step.VerbPart, step.VerbPart: step.VerbJoin,
		step.VerbActivate: step.VerbDeactivate, step.VerbDeactivate: step.VerbActivate}[verb]
}

// want is what the object of an action becomes; it fails where the action makes no sense.
func (w *world) want(a step.Action) (string, map[string]any, error) {
	switch do := a.Do.(type) {
	case step.Apply:
		return step.RefOf(do.Object).String(), do.Object.Object, nil
	case step.Delete:
		return do.Ref.String(), nil, nil
	case step.Patch:
		old, exists := w.objects[do.Ref.String()]
		if !exists {
			return "", nil, fmt.Errorf("%s does not exist", do.Ref)
		}
		var patch map[string]any
		if err := json.Unmarshal(do.Merge, &patch); err != nil {
			return "", nil, err
		}
		return do.Ref.String(), merge(copyOf(old), patch), nil
	case step.Node:
		key := "Agent/" + do.NodeName
		next := map[string]any{}
		if old := w.objects[key]; old != nil {
			next = copyOf(old)
		}
		switch do.Verb {
		case step.VerbActivate:
			next["active"] = true
		case step.VerbDeactivate:
			delete(next, "active")
		case step.VerbJoin:
			next["joined"] = true
		case step.VerbPart:
			delete(next, "joined")
		case step.VerbClean:
			next["clean"] = true
		}
		if len(next) == 0 {
			next = nil
		}
		return key, next, nil
	case step.Probe:
		var data map[string]any
		raw, _ := json.Marshal(do.Paths)
		_ = json.Unmarshal(raw, &data)
		if len(data) == 0 {
			data = nil
		}
		return "ProbePlan", data, nil
	}
	return "", nil, nil
}

func merge(into, patch map[string]any) map[string]any {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap:
			old, _ := into[key].(map[string]any)
			if old == nil {
				old = map[string]any{}
			}
			into[key] = merge(old, inner)
		default:
			into[key] = value
		}
	}
	return into
}

// unmerge is the patch that takes a patch on old back.
func unmerge(old, patch map[string]any) map[string]any {
	back := map[string]any{}
	for key, value := range patch {
		was, had := old[key]
		inner, isMap := value.(map[string]any)
		wasMap, wasIsMap := was.(map[string]any)
		switch {
		case !had:
			back[key] = nil
		case isMap && wasIsMap:
			back[key] = unmerge(wasMap, inner)
		default:
			back[key] = was
		}
	}
	return back
}

// Observe implements engine.Actor.
func (w *world) Observe(_ context.Context, a step.Action, before json.RawMessage) (engine.Observation, error) {
	switch do := a.Do.(type) {
	case step.Evict:
		pods := len(w.pods(do.Pods))
		now, _ := json.Marshal(map[string]int{"pods": pods})
		if before == nil {
			w.first[a.ID] = string(now)
		}
		if string(before) != "" && string(before) != w.first[a.ID] {
			return engine.Observation{}, fmt.Errorf("at the first look %s was seen, and it is told %s",
				w.first[a.ID], before)
		}
		return engine.Observation{Done: pods == 0, Before: now}, nil
	case step.Wait:
		holds, _, err := w.holds(do.Condition)
		return engine.Observation{Done: holds}, err
	}
	key, next, err := w.want(a)
	if err != nil {
		return engine.Observation{}, err
	}
	old, exists := w.objects[key]
	was, _ := json.Marshal(old)
	seen := engine.Observation{Done: exists == (next != nil) && reflect.DeepEqual(old, next), Before: was}
	switch do := a.Do.(type) {
	case step.Apply, step.Delete:
		if exists {
			seen.Inverse = &step.Action{Do: step.Apply{Object: &unstructured.Unstructured{Object: copyOf(old)}}}
		} else if do, is := a.Do.(step.Apply); is {
			ref := step.RefOf(do.Object)
			seen.Inverse = &step.Action{Do: step.Delete{Ref: ref}}
		}
	case step.Patch:
		var patch map[string]any
		_ = json.Unmarshal(do.Merge, &patch)
		back, _ := json.Marshal(unmerge(old, patch))
		seen.Inverse = &step.Action{Do: step.Patch{Ref: do.Ref, Merge: back}}
	case step.Node:
		if verb := opposite(do.Verb); verb != "" {
			seen.Inverse = &step.Action{Do: step.Node{NodeName: do.NodeName, Verb: verb}}
		}
	case step.Probe:
		var paths step.PathSet
		_ = json.Unmarshal(was, &paths)
		seen.Inverse = &step.Action{Do: step.Probe{Paths: paths}}
	}
	return seen, nil
}

// Do implements engine.Actor.
func (w *world) Do(_ context.Context, a step.Action, before json.RawMessage) (json.RawMessage, error) {
	if err := w.hook("before doing " + a.ID); err != nil {
		return nil, err
	}
	if a.Op() == step.OpEvict && string(before) != w.first[a.ID] {
		return nil, fmt.Errorf("before the first try %s was seen, and it is told %s", w.first[a.ID], before)
	}
	if err := w.do(a); err != nil {
		return nil, err
	}
	return nil, w.hook("after doing " + a.ID)
}

func (w *world) do(a step.Action) error {
	switch do := a.Do.(type) {
	case step.Wait:
		return errors.New("the condition never came true")
	case step.Evict:
		for _, key := range w.pods(do.Pods) {
			pod := copyOf(w.objects[key])
			pod["network"] = "old"
			if agent := w.objects["Agent/"+do.Pods.Node]; agent != nil && agent["active"] == true {
				pod["network"] = "new"
			}
			if err := w.set(a.ID, key, pod); err != nil {
				return err
			}
		}
		if left := w.pods(do.Pods); len(left) > 0 {
			return fmt.Errorf("%d pods come back on the same network", len(left))
		}
		return nil
	}
	key, next, err := w.want(a)
	if err != nil {
		return err
	}
	return w.set(a.ID, key, next)
}

// pods are the keys of the pods of a node on a network; the CIDRs of tests are "old" and "new".
func (w *world) pods(set step.PodSet) []string {
	var keys []string
	for key, object := range w.objects {
		if strings.HasPrefix(key, "Pod/") && object["node"] == set.Node &&
			slices.Contains(set.CIDRs, object["network"].(string)) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Holds implements engine.Actor.
func (w *world) Holds(_ context.Context, c step.Condition) (bool, string, error) {
	if err := w.hook("looking at " + string(c.Kind())); err != nil {
		return false, "", err
	}
	return w.holds(c)
}

func (w *world) holds(c step.Condition) (bool, string, error) {
	switch is := c.Is.(type) {
	case step.NoPods:
		for key, object := range w.objects {
			if strings.HasPrefix(key, "Pod/") && slices.Contains(is.CIDRs, object["network"].(string)) {
				return false, key + " is still there", nil
			}
		}
		return true, "", nil
	case step.Gone:
		return w.objects[is.Ref.String()] == nil, is.Ref.String() + " is there", nil
	}
	return w.objects[c.Ref().String()] != nil, c.Ref().String() + " does not exist", nil
}

// Ask implements engine.Gate: it passes unless gates says false for its title.
func (w *world) Ask(ctx context.Context, g step.Gate, follow func(context.Context) error) (engine.Verdict, error) {
	if err := w.hook("asking " + g.Title); err != nil {
		return engine.Verdict{}, err
	}
	w.compared[g.Title] = slices.Concat(g.Changed, g.About)
	for range w.bake {
		if err := w.clock.Sleep(ctx, time.Second); err != nil {
			return engine.Verdict{}, err
		}
		if err := w.hook("baking " + g.Title); err != nil {
			return engine.Verdict{}, err
		}
		if err := follow(ctx); err != nil {
			return engine.Verdict{}, err
		}
	}
	if pass, set := w.gates[g.Title]; set && !pass {
		return engine.Verdict{Reason: "3 of 100 lost", Sent: 100, Lost: 3}, nil
	}
	return engine.Verdict{Pass: true, Reason: "0 of 100 lost", Sent: 100}, nil
}

// Desire implements engine.Control.
func (w *world) Desire(context.Context) (v1alpha1.Desire, error) {
	return w.desire, w.hook("reading the desire")
}

// AskedBy implements engine.Asker.
func (w *world) AskedBy() string { return w.askedBy }

// disk is a journal that keeps bytes, as a real one does.
type disk struct {
	lines   [][]byte
	records []engine.Record // decoded from lines
	hook    func(point string) error
}

// Append implements engine.Journal.
func (d *disk) Append(_ context.Context, records ...engine.Record) error {
	for _, r := range records {
		if err := d.append(r); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) append(r engine.Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if n := len(d.lines); r.Seq > 0 && r.Seq <= n && string(d.lines[r.Seq-1]) == string(line) {
		return nil
	}
	if r.Seq != len(d.lines)+1 {
		return fmt.Errorf("record %d after %d", r.Seq, len(d.lines))
	}
	if err := d.call("before " + string(r.Event)); err != nil {
		return err
	}
	var decoded engine.Record
	if err := json.Unmarshal(line, &decoded); err != nil {
		return err
	}
	d.lines, d.records = append(d.lines, line), append(d.records, decoded)
	return d.call("after " + string(r.Event))
}

func (d *disk) call(point string) error {
	if d.hook == nil {
		return nil
	}
	return d.hook(point)
}

// Records implements engine.Journal.
func (d *disk) Records(context.Context) ([]engine.Record, error) {
	return slices.Clone(d.records), nil
}

// clock jumps where the engine would sleep.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

// Now implements engine.Clock.
func (c *clock) Now() time.Time { return c.now }

// Sleep implements engine.Clock.
func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.now = c.now.Add(d)
	return nil
}
