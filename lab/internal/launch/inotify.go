package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/state"
)

// Instances of inotify that a lab may need, of its control plane and of each node, and that everything else of the user
// may have. The kernel's limit is for all processes of a user: with 128, the kubelets of the fifth cluster of two nodes
// did not register. Seen: 38 with three nodes, 83 with eight.
const (
	planeInstances = 24
	nodeInstances  = 16
	otherInstances = 32
)

// inotify is the machine's limit, and the file in which a store keeps what it was before labs raised it.
type inotify struct{ limit, kept string }

func inotifyOf(store *state.Store) inotify {
	return inotify{"/proc/sys/fs/inotify/max_user_instances", filepath.Join(store.Root(), "inotify")}
}

// raised is a limit as it was, and as labs have set it.
type raised struct{ before, set int }

// fit raises the limit to what these labs need, and returns a line about it; "" if there is room already.
func (i inotify) fit(labs []state.Lab) (string, error) {
	need := otherInstances
	for _, lab := range labs {
		need += planeInstances + nodeInstances*lab.Spec.Nodes
	}
	has, err := number(i.limit)
	if err != nil || has >= need {
		return "", err
	}
	before := has
	if old, err := i.read(); err == nil && old.set == has {
		before = old.before
	}
	if err := os.WriteFile(i.kept, fmt.Appendf(nil, "%d %d\n", before, need), 0o644); err != nil {
		return "", err
	}
	if err := os.WriteFile(i.limit, []byte(strconv.Itoa(need)), 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("fs.inotify.max_user_instances is %d until the last lab is down (was %d)", need, before), nil
}

// restore takes back what fit did, unless the limit has been changed by another since.
func (i inotify) restore() error {
	old, err := i.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if has, err := number(i.limit); err != nil {
		return err
	} else if has == old.set {
		if err := os.WriteFile(i.limit, []byte(strconv.Itoa(old.before)), 0o644); err != nil {
			return err
		}
	}
	return os.Remove(i.kept)
}

func (i inotify) read() (r raised, err error) {
	raw, err := os.ReadFile(i.kept)
	if err != nil {
		return r, err
	}
	_, err = fmt.Sscan(string(raw), &r.before, &r.set)
	return r, err
}

func number(file string) (int, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(raw)))
}
