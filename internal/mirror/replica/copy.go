package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/theseus-cni/theseus/internal/mirror/objects"
)

// Copier copies from one cluster to another.
type Copier struct {
	Original, Mirror *Cluster
	Namespaces       []string
	Options          objects.Options
	Workers          int // writes under way at once; 0: DefaultWorkers
	// Prove is asked about what is going to be applied, before anything is. Nil: nothing has to be proven.
	Prove func(context.Context, *objects.Plan) error
	Note  func(string)
	// Planned says that what the options name was found before: it may be gone meanwhile.
	Planned bool
}

// DefaultWorkers is how many writes are under way at once.
const DefaultWorkers = 16

// Pass is what one look at both clusters saw, and what it did.
type Pass struct {
	Plan     *objects.Plan
	Delta    *objects.Delta
	Created  int
	Updated  int
	Deleted  int
	Failures []Failure
	Took     time.Duration // of the writing

	seen []seen
}

// Failure is an object that the mirror did not take.
type Failure struct {
	Key objects.Key
	Err error
}

// Look reads both clusters and lists the necessary changes.
func (c *Copier) Look(ctx context.Context) (*Pass, error) {
	source, err := c.Original.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("the original: %w", err)
	}
	mirror, err := c.Mirror.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("the mirror: %w", err)
	}
	if source == mirror {
		return nil, &Refusal{what: "the original and the mirror are one cluster",
			hint: "name the other one with --mirror-context or --mirror-kubeconfig"}
	}
	var kinds, theirKinds []kind
	var versions, theirVersions map[schema.GroupKind][]string
	if err := both(func() (err error) {
		kinds, versions, err = c.originalKinds()
		return err
	}, func() (err error) {
		if theirKinds, theirVersions, _, err = c.Mirror.kinds(); err != nil {
			err = fmt.Errorf("the mirror: %w", err)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if kinds, err = common(kinds, versions, theirVersions); err != nil {
		return nil, &Refusal{what: "no version of the API is served by both clusters: " + err.Error(),
			hint: "bring the two clusters to neighbouring versions of Kubernetes"}
	}
	var here, there reading
	pass := &Pass{}
	if err := both(func() (err error) {
		pass.Plan, here, err = c.survey(ctx, source, kinds)
		return err
	}, func() (err error) {
		if there, err = c.Mirror.read(ctx, served(kinds, theirKinds), c.Namespaces); err != nil {
			err = fmt.Errorf("the mirror: %w", err)
		}
		return err
	}); err != nil {
		return nil, err
	}
	pass.seen = slices.Concat(here.seen, there.seen)
	pass.Delta = pass.Plan.Against(there.objects)
	if err := c.unknown(pass.Plan, theirVersions); err != nil {
		return nil, err
	}
	return pass, nil
}

// both looks at the two clusters at once; the first one's error comes first.
func both(original, mirror func() error) error {
	var group errgroup.Group
	var there error
	group.Go(func() error {
		there = mirror()
		return nil
	})
	here := original()
	group.Wait() //nolint:errcheck // there has it
	return cmp.Or(here, there)
}

// Survey reads the original alone, and says what would go over.
func (c *Copier) Survey(ctx context.Context) (*objects.Plan, error) {
	source, err := c.Original.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("the original: %w", err)
	}
	kinds, _, err := c.originalKinds()
	if err != nil {
		return nil, err
	}
	plan, _, err := c.survey(ctx, source, kinds)
	return plan, err
}

func (c *Copier) originalKinds() ([]kind, map[schema.GroupKind][]string, error) {
	kinds, versions, unread, err := c.Original.kinds()
	if err != nil {
		return nil, nil, fmt.Errorf("the original: %w", err)
	}
	if len(unread) > 0 {
		return nil, nil, &Refusal{what: "the original does not list its " + strings.Join(unread, ", ") +
			": an aggregated API does not answer",
			hint: "kubectl get apiservices shows which; repair it or delete it"}
	}
	return kinds, versions, nil
}

func (c *Copier) survey(ctx context.Context, source string, kinds []kind) (*objects.Plan, reading, error) {
	if err := c.namespacesExist(ctx); err != nil {
		return nil, reading{}, err
	}
	here, err := c.Original.read(ctx, kinds, c.Namespaces)
	if err != nil {
		return nil, here, fmt.Errorf("the original: %w", err)
	}
	if !c.Planned {
		if err := named(c.Options, kinds, here.objects); err != nil {
			return nil, here, err
		}
		c.Planned = true
	}
	world := objects.World{Source: source, Namespaces: c.Namespaces, Objects: here.objects}
	for _, k := range kinds {
		err, ok := here.refused[k.group]
		if ok && k.namespaced {
			return nil, here, fmt.Errorf("the original: %w", err)
		}
		if ok {
			world.Unread = append(world.Unread, k.group)
			c.Note(fmt.Sprintf("%s of the original may not be read, and are not copied: %v", k.group, err))
		}
	}
	return objects.Make(world, c.Options), here, nil
}

// served are the kinds that the mirror has, in the versions that both have.
func served(kinds, there []kind) []kind {
	known := map[schema.GroupKind]bool{}
	for _, k := range there {
		known[k.group] = true
	}
	var both []kind
	for _, k := range kinds {
		if known[k.group] {
			both = append(both, k)
		}
	}
	return both
}

func (c *Copier) namespacesExist(ctx context.Context) error {
	var missing []string
	for _, name := range c.Namespaces {
		_, err := retried(ctx, func(ctx context.Context) (any, error) {
			return c.Original.Typed.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		})
		if apierrors.IsNotFound(err) {
			missing = append(missing, name)
		} else if err != nil {
			return fmt.Errorf("the original: %w", err)
		}
	}
	if len(missing) > 0 {
		return &Refusal{what: "the original has no namespace " + strings.Join(missing, ", "),
			hint: "kubectl get namespaces lists them"}
	}
	return nil
}

// unknown refuses kinds that the mirror does not serve and gets no definition of.
func (c *Copier) unknown(plan *objects.Plan, there map[schema.GroupKind][]string) error {
	coming := map[schema.GroupKind]bool{}
	count := map[schema.GroupKind]int{}
	for _, wave := range plan.Waves {
		for _, item := range wave {
			key := objects.KeyOf(item.Object)
			if key.Kind == "CustomResourceDefinition" {
				defined := struct {
					Spec struct {
						Group string
						Names struct{ Kind string }
					}
				}{}
				if data, err := json.Marshal(item.Object.Object); err == nil && json.Unmarshal(data, &defined) == nil {
					coming[schema.GroupKind{Group: defined.Spec.Group, Kind: defined.Spec.Names.Kind}] = true
				}
			}
			count[key.GroupKind()]++
		}
	}
	var missing []string
	for kind, n := range count {
		if len(there[kind]) == 0 && !coming[kind] {
			missing = append(missing, fmt.Sprintf("%s (%d)", kind, n))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return &Refusal{what: "the mirror does not serve the kinds " + strings.Join(missing, ", ") +
		", and they have no CustomResourceDefinition that could be copied",
		hint: "install the API that serves them on the mirror, or leave them out: --decide KIND.GROUP=skip"}
}

// Refusal is a state of things in which nothing is changed.
type Refusal struct{ what, hint string }

func (r *Refusal) Error() string { return r.what }

// Hint says what to try.
func (r *Refusal) Hint() string { return r.hint }

// Carry writes to the mirror what a look found.
func (c *Copier) Carry(ctx context.Context, pass *Pass) error {
	begun := time.Now()
	defer func() { pass.Took += time.Since(begun) }()
	if c.Prove != nil && pass.Delta.Writes() > 0 {
		if err := c.Prove(ctx, pass.Plan); err != nil {
			return err
		}
	}
	w := &writer{copier: c, pass: pass, uids: map[objects.Key]string{},
		resources: map[schema.GroupVersionKind]*meta.RESTMapping{}}
	for _, wave := range pass.Delta.Waves {
		if err := w.each(ctx, wave, w.apply); err != nil {
			return err
		}
		if err := w.established(ctx, wave); err != nil {
			return err
		}
	}
	if len(pass.Failures) == 0 { // what failed may be what something else was waiting for
		if err := w.each(ctx, pass.Delta.Deletes, w.delete); err != nil {
			return err
		}
	}
	slices.SortFunc(pass.Failures, func(a, b Failure) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return nil
}

// writer does the writes of one pass.
type writer struct {
	copier *Copier
	pass   *Pass

	lock      sync.Mutex
	uids      map[objects.Key]string
	resources map[schema.GroupVersionKind]*meta.RESTMapping
}

// each does steps side by side. Only the end of the context ends it early.
func (w *writer) each(ctx context.Context, steps []objects.Step, do func(context.Context, objects.Step) error) error {
	var group errgroup.Group
	group.SetLimit(cmp.Or(w.copier.Workers, DefaultWorkers))
	for _, step := range steps {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err := do(ctx, step)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			w.lock.Lock()
			defer w.lock.Unlock()
			switch {
			case err != nil:
				w.pass.Failures = append(w.pass.Failures, Failure{step.Key, err})
			case step.Verb == objects.Create:
				w.pass.Created++
			case step.Verb == objects.Update:
				w.pass.Updated++
			default:
				w.pass.Deleted++
			}
			return nil
		})
	}
	return group.Wait()
}

func (w *writer) apply(ctx context.Context, step objects.Step) error {
	wanted, err := step.Item.Wanted(step.Live, func(key objects.Key) (string, bool) { return w.uid(ctx, key) })
	if err != nil {
		return err
	}
	data, err := json.Marshal(wanted.Object)
	if err != nil {
		return err
	}
	mapping, err := w.mapping(wanted.GroupVersionKind())
	if err != nil {
		return err
	}
	resource := w.copier.Mirror.writer.Resource(mapping.Resource).Namespace(step.Key.Namespace)
	// An apply refuses fields that its kind does not have, whatever is asked for; to be warned of them too would have
	// the server read each object twice.
	options := metav1.PatchOptions{FieldManager: objects.Manager, Force: ptr.To(true),
		FieldValidation: metav1.FieldValidationIgnore}
	applied, err := retried(ctx, func(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
		return resource.Patch(ctx, step.Key.Name, types.ApplyPatchType, data, options)
	})
	if err != nil {
		return err
	}
	w.lock.Lock()
	w.uids[step.Key] = string(applied.UID)
	w.lock.Unlock()
	return nil
}

// uid is the identity of an object on the mirror: of one just written, or of one that was there.
func (w *writer) uid(ctx context.Context, key objects.Key) (string, bool) {
	w.lock.Lock()
	uid, ok := w.uids[key]
	w.lock.Unlock()
	if ok {
		return uid, true
	}
	gvk := w.pass.Plan.Version(key)
	if gvk.Empty() {
		return "", false
	}
	mapping, err := w.mapping(gvk)
	if err != nil {
		return "", false
	}
	live, err := retried(ctx, func(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
		return w.copier.Mirror.writer.Resource(mapping.Resource).Namespace(key.Namespace).Get(ctx,
			key.Name, metav1.GetOptions{})
	})
	if err != nil {
		return "", false
	}
	return string(live.UID), true
}

func (w *writer) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if known := w.resources[kind]; known != nil {
		return known, nil
	}
	mapping, err := w.copier.Mirror.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	w.resources[kind] = mapping
	return mapping, nil
}

func (w *writer) delete(ctx context.Context, step objects.Step) error {
	mapping, err := w.mapping(step.Live.GroupVersionKind())
	if err != nil {
		return err
	}
	_, err = retried(ctx, func(ctx context.Context) (any, error) {
		uid := step.Live.GetUID()
		return nil, w.copier.Mirror.writer.Resource(mapping.Resource).Namespace(step.Key.Namespace).Delete(ctx,
			step.Key.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid},
				PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// definitionPatience bounds how long the mirror may take to serve a kind that was just defined.
const definitionPatience = time.Minute

// established waits until the kinds that a wave defined are served.
func (w *writer) established(ctx context.Context, wave []objects.Step) error {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	waited := false
	for _, step := range wave {
		if step.Key.Kind != "CustomResourceDefinition" || step.Key.Group != definitions.Group || w.failed(step.Key) {
			continue
		}
		waited = true
		bounded, cancel := context.WithTimeout(ctx, definitionPatience)
		err := waitEstablished(bounded, w.copier.Mirror.objects.Resource(definitions), step.Key.Name)
		cancel()
		if err != nil {
			return err
		}
	}
	if waited {
		w.copier.Mirror.Mapper.Reset()
	}
	return nil
}

func (w *writer) failed(key objects.Key) bool {
	return slices.ContainsFunc(w.pass.Failures, func(f Failure) bool { return f.Key == key })
}

func waitEstablished(ctx context.Context, definitions dynamic.ResourceInterface, name string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	why := errors.New("no answer")
	for {
		definition, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			why = err
		} else if ok, reason := isEstablished(definition); ok {
			return nil
		} else {
			why = errors.New(reason)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the mirror does not serve the kind of %s within %s: %w", name, definitionPatience, why)
		case <-tick.C:
		}
	}
}

func isEstablished(definition objects.Object) (bool, string) {
	status, _ := definition.Object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	reason := "it has no status yet"
	for _, one := range conditions {
		fields, _ := one.(map[string]any)
		if fields["type"] == "Established" && fields["status"] == "True" {
			return true, ""
		}
		if fields["status"] == "False" {
			reason = fmt.Sprint(fields["message"])
		}
	}
	return false, reason
}
