package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/control"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// Taint is a taint of a Node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// ErrNoAdding says that nodes cannot be added to a lab.
var ErrNoAdding = errors.New("the lab cannot have more nodes")

// Add makes nodes in a running lab, set up as by Up, and waits until they are Ready, or, without a network, until their
// kubelets have registered. They have the taints from the start. bare nodes have no files of the network that the lab
// started on, so they need another one. Add returns their names; it removes nodes that it could not finish.
func Add(ctx context.Context, store *state.Store, name string, count int, taints []Taint, bare bool,
	limit time.Duration) ([]string, error) {
	lab, added, err := reserve(store, name, count, bare)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var names []string
	for _, n := range added {
		names = append(names, lab.Spec.NodeName(n))
		if err == nil {
			err = addNode(ctx, lab.Spec, n, taints)
		}
	}
	if err == nil {
		err = awaitNodes(ctx, lab.Spec, names)
	}
	if err == nil {
		return names, nil
	}
	for _, node := range names {
		err = errors.Join(err, Remove(context.WithoutCancel(ctx), store, name, node))
	}
	return nil, err
}

// reserve reserves numbers for new nodes, while no other command does.
func reserve(store *state.Store, name string, count int, bare bool) (lab state.Lab, added []int, err error) {
	err = change(store, name, func(known *state.Lab) error {
		s := &known.Spec
		switch {
		case s.Network == "bridge" && !bare:
			return fmt.Errorf("%w: the network bridge has static routes to the first nodes only", ErrNoAdding)
		case s.Nodes+count > spec.MaxNodes:
			return fmt.Errorf("%w: it had %d, removed ones included, and with %d more there would be over %d",
				ErrNoAdding, s.Nodes, count, spec.MaxNodes)
		}
		for range count {
			s.Nodes++
			added = append(added, s.Nodes)
		}
		lab = *known
		return nil
	})
	return lab, added, err
}

// change rewrites the description of a running lab while no other command does.
func change(store *state.Store, name string, edit func(*state.Lab) error) error {
	unlock, err := store.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	lab, err := store.Load(name)
	if err != nil {
		return err
	}
	if err := edit(&lab); err != nil {
		return err
	}
	return store.Save(lab)
}

func addNode(ctx context.Context, s spec.Lab, n int, taints []Taint) error {
	object, err := json.Marshal(nodeObject(s, n, taints))
	if err != nil {
		return err
	}
	if err := kubectl(ctx, s, object, "create", "--validate=false", "-f", "-"); err != nil {
		return err
	}
	return control.Dial(ControlSocket(s)).Add(ctx, n)
}

// awaitNodes uses kubectl's own timeout, so that kubectl says what was missing.
func awaitNodes(ctx context.Context, s spec.Lab, names []string) error {
	condition := "condition=Ready"
	if s.Network == "none" {
		condition = "condition=Ready=false"
	}
	deadline, _ := ctx.Deadline()
	args := []string{"wait", "--for=" + condition, "--timeout=" + time.Until(deadline).Round(time.Second).String()}
	for _, name := range names {
		args = append(args, "node/"+name)
	}
	return kubectl(ctx, s, nil, args...)
}

// Remove stops a node of a running lab and removes all its remains, including its Node object. Its number is not used
// again.
func Remove(ctx context.Context, store *state.Store, name, node string) error {
	lab, err := store.Load(name)
	if err != nil {
		return err
	}
	n, ok := lab.Spec.NodeNumber(node)
	if !ok {
		return fmt.Errorf("lab %s has no node %q", name, node)
	}
	if err := control.Dial(ControlSocket(lab.Spec)).Remove(ctx, n); err != nil {
		return err
	}
	if err := kubectl(ctx, lab.Spec, nil, "delete", "node", lab.Spec.NodeName(n), "--ignore-not-found"); err != nil {
		return err
	}
	return change(store, name, func(known *state.Lab) error {
		if !slices.Contains(known.Spec.Removed, n) {
			known.Spec.Removed = append(known.Spec.Removed, n)
		}
		return nil
	})
}
