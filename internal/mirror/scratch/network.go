package scratch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// servedAtMost bounds the wait for the API server to serve a kind that was just defined.
const servedAtMost = time.Minute

// Network installs the original's network, or gives the scratch cluster's own the original's settings, and waits until
// its workloads and the nodes are ready, at most so long.
func (s *Scratch) Network(ctx context.Context, made *rehearsal.Copy, atMost time.Duration) error {
	n := &made.Network
	var first, last []*unstructured.Unstructured
	for _, object := range n.Installs {
		if rehearsal.Runs(object) {
			last = append(last, object)
		} else {
			first = append(first, object)
		}
	}
	for _, object := range slices.Concat(first, n.Settings, last) {
		if err := s.put(ctx, object, n.Restart); err != nil {
			return fmt.Errorf("%s: %w", named(object.GetKind(), object.GetNamespace(), object.GetName()), err)
		}
	}
	var refs []step.Ref
	for _, object := range last {
		refs = append(refs, step.RefOf(object))
	}
	if err := s.restart(ctx, n.Restart); err != nil {
		return err
	}
	return s.up(ctx, slices.Concat(refs, n.Restart), len(n.Installs) > 0, atMost)
}

// put makes an object of the network, or changes the one that is there.
func (s *Scratch) put(ctx context.Context, object *unstructured.Unstructured, restart []step.Ref) error {
	end := time.Now().Add(servedAtMost)
	for tries := 0; ; tries++ {
		err := s.putOnce(ctx, object, restart)
		// a kind of a CRD that was just made is not served yet
		soon := meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || unborn(err)
		if !soon && !(apierrors.IsConflict(err) && tries < mostConflicts) || time.Now().After(end) ||
			outage.Sleep(ctx, lookAgain/4) != nil {
			return err
		}
		if meta.IsNoMatchError(err) {
			s.Client.Mapper.Reset()
		}
	}
}

func (s *Scratch) putOnce(ctx context.Context, object *unstructured.Unstructured, restart []step.Ref) error {
	resource, err := s.resource(object)
	if err != nil {
		return err
	}
	err = s.call(ctx, func(ctx context.Context) error {
		_, err := resource.Create(ctx, object, metav1.CreateOptions{FieldManager: rehearsal.Manager})
		return err
	})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return s.call(ctx, func(ctx context.Context) error {
		live, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil || rehearsal.Made(live) {
			return err
		}
		if _, configures := object.Object["spec"]; !configures && object.Object["data"] == nil ||
			rehearsal.Runs(object) || object.GetKind() == "CustomResourceDefinition" {
			return &cni.Refusal{Message: "the scratch cluster has such an object already, which this rehearsal did " +
				"not make; it stays as it is", Hint: "remove the network that left it, or leave out --network-manifest"}
		}
		changed, err := rehearsal.Change(live, object, restart)
		if err != nil || changed == nil {
			return err
		}
		_, err = resource.Update(ctx, changed, metav1.UpdateOptions{FieldManager: rehearsal.Manager})
		return err
	})
}

// at is where the object of a reference is.
func (s *Scratch) at(ref step.Ref) (dynamic.ResourceInterface, error) {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(ref.APIVersion)
	object.SetKind(ref.Kind)
	object.SetNamespace(ref.Namespace)
	return s.resource(object)
}

// restart has workloads replace their pods.
func (s *Scratch) restart(ctx context.Context, refs []step.Ref) error {
	for _, ref := range refs {
		resource, err := s.at(ref)
		if err != nil {
			return err
		}
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`,
			"kubectl.kubernetes.io/restartedAt", time.Now().Format(time.RFC3339))
		if err := s.call(ctx, func(ctx context.Context) error {
			_, err := resource.Patch(ctx, ref.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: rehearsal.Manager})
			return err
		}); err != nil {
			return fmt.Errorf("restart %s: %w", ref, err)
		}
	}
	return nil
}

// up waits until workloads are rolled out, and the nodes are ready if the network is new.
func (s *Scratch) up(ctx context.Context, refs []step.Ref, nodes bool, atMost time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	said := ""
	for {
		waits, err := s.down(ctx, refs, nodes)
		if err == nil && len(waits) == 0 {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if text := strings.Join(waits[:min(3, len(waits))], "; "); err == nil && text != said {
			s.Note("waiting for the network: " + text)
			said = text
		}
		if outage.Sleep(ctx, lookAgain) == nil {
			continue
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
		return &cni.Refusal{Message: fmt.Sprintf("the network of the scratch cluster is not ready after %s: %s", atMost,
			said), Hint: "kubectl describe its pods says why; --wait sets how long to wait"}
	}
}

// down lists what is not ready.
func (s *Scratch) down(ctx context.Context, refs []step.Ref, nodes bool) (waits []string, err error) {
	for _, ref := range refs {
		resource, err := s.at(ref)
		if err != nil {
			return nil, err
		}
		var object *unstructured.Unstructured
		if err := s.call(ctx, func(ctx context.Context) (err error) {
			object, err = resource.Get(ctx, ref.Name, metav1.GetOptions{})
			return err
		}); err != nil {
			return nil, err
		}
		if !ready(object) || !rolled(object) {
			waits = append(waits, named(ref.Kind, ref.Namespace, ref.Name)+" is not ready")
		}
	}
	if !nodes {
		return waits, nil
	}
	var list *corev1.NodeList
	if err := s.call(ctx, func(ctx context.Context) (err error) {
		list, err = s.Client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if !cluster.NodeReady(&list.Items[i]) {
			waits = append(waits, "Node "+list.Items[i].Name+" is not ready")
		}
	}
	return waits, nil
}

// rolled reports whether all pods of a DaemonSet have its present template, and it has any.
func rolled(live *unstructured.Unstructured) bool {
	if live.GetKind() != "DaemonSet" {
		return true
	}
	updated, _, _ := unstructured.NestedInt64(live.Object, "status", "updatedNumberScheduled")
	desired, _, _ := unstructured.NestedInt64(live.Object, "status", "desiredNumberScheduled")
	return desired > 0 && updated == desired
}

// takeBack gives objects that a rehearsal changed what they had, and restarts what reads them.
func (s *Scratch) takeBack(ctx context.Context, parts []Part) (n int, err error) {
	var restarts []step.Ref
	for _, part := range parts {
		var refs []step.Ref
		done := false
		change := func() error {
			return s.call(ctx, func(ctx context.Context) error {
				resource := s.Client.Dynamic.Resource(part.resource).Namespace(part.Namespace)
				live, err := resource.Get(ctx, part.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				before, again, err := rehearsal.TakenBack(live)
				if err != nil || before == nil {
					return err
				}
				refs, done = again, true
				_, err = resource.Update(ctx, before, metav1.UpdateOptions{FieldManager: rehearsal.Manager})
				return err
			})
		}
		err := change()
		for tries := 0; apierrors.IsConflict(err) && tries < mostConflicts; tries++ {
			if outage.Sleep(ctx, lookAgain/4) != nil {
				break
			}
			err = change()
		}
		switch {
		case apierrors.IsNotFound(err): // it went with the network
		case err != nil:
			return n, fmt.Errorf("%s: %w", part, err)
		case done:
			n++
			for _, ref := range refs {
				if !slices.Contains(restarts, ref) {
					restarts = append(restarts, ref)
				}
			}
		}
	}
	for _, ref := range restarts {
		if err := s.restart(ctx, []step.Ref{ref}); err != nil && !apierrors.IsNotFound(err) {
			return n, err
		}
	}
	return n, nil
}

// rank is the order in which the objects of a network are deleted: its workloads first, what defines kinds last.
func (p Part) rank() int {
	switch p.Kind {
	case "DaemonSet", "Deployment", "StatefulSet", "Job", "Pod":
		return 0
	case "Namespace":
		return 2
	case "CustomResourceDefinition":
		return 3
	}
	return 1
}
