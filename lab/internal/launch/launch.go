// Package launch starts and removes labs: it builds or finds everything that a lab needs, starts the outer process, and
// waits until the cluster has the requested state, by watching the API server and not by sleeping.
package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/cgroup"
	"github.com/theseus-cni/theseus/lab/internal/kubeapi"
	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// Options are the options of a lab.
type Options struct {
	Spec  spec.Lab      // Index, Dir, binaries, images and port are filled in
	Cache *build.Cache  // programs and images
	Store *state.Store  // the known labs
	Out   io.Writer     // progress, a line for each thing that happened
	Limit time.Duration // how long the cluster may take to become ready, builds not counted
}

// ErrRunning says that a lab of that name is running.
var ErrRunning = errors.New("the lab is already running")

// launch is one Up in progress.
type launch struct {
	Options
	start    time.Time
	lab      state.Lab
	secrets  *pki.Lab
	listener *net.TCPListener
	api      *kubeapi.Client
}

// Up starts a lab. If it fails, no process of the lab is left running, and its logs are in its state directory.
func Up(ctx context.Context, o Options) error {
	l := &launch{Options: o, start: time.Now()}
	if old, err := o.Store.Load(o.Spec.Name); err == nil && old.Running() {
		return fmt.Errorf("%w: %s", ErrRunning, o.Spec.Name) // before a build of minutes
	}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	if err := l.register(ctx); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	if err := l.waitReady(ready); err != nil {
		return errors.Join(err, l.lab.Stop(stopLimit))
	}
	l.say("ready: %s on %s", spec.Count(l.lab.Spec.Nodes, "node"), l.lab.Spec.Network)
	return nil
}

// stopLimit is how long the processes of a lab may take to end.
const stopLimit = 20 * time.Second

// Down stops a lab and removes all its remains. It returns state.ErrNoLab if there is none.
func Down(store *state.Store, name string) error {
	unlock, err := store.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	lab, err := store.Load(name)
	if err != nil {
		return err
	}
	if err := lab.Stop(stopLimit); err != nil {
		return err
	}
	others, err := store.Others(name)
	if err == nil && len(others) == 0 {
		err = inotifyOf(store).restore()
	}
	return errors.Join(err, store.Remove(name))
}

func (l *launch) say(format string, args ...any) {
	fmt.Fprintf(l.Out, "%6.1fs  %s\n", time.Since(l.start).Seconds(), fmt.Sprintf(format, args...))
}

// register takes a slot and starts the outer process while no other command can do either.
func (l *launch) register(ctx context.Context) error {
	unlock, err := l.Store.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.clearOld(); err != nil {
		return err
	}
	others, err := l.Store.Others(l.Spec.Name)
	if err != nil {
		return err
	}
	if l.lab.Spec.Index, err = state.FreeIndex(others); err != nil {
		return err
	}
	if err := l.describe(); err != nil {
		return err
	}
	switch line, err := inotifyOf(l.Store).fit(append(others, l.lab)); {
	case err != nil:
		l.say("fs.inotify.max_user_instances stays as it is, which may be too low for many nodes: %v", err)
	case line != "":
		l.say("%s", line)
	}
	if err := l.startOuter(ctx); err != nil {
		return errors.Join(err, l.lab.Stop(stopLimit))
	}
	if err := l.join(others); err != nil {
		return errors.Join(err, l.lab.Stop(stopLimit))
	}
	return nil
}

// clearOld removes the remains of a lab with the same name that did not end by Down.
func (l *launch) clearOld() error {
	old, err := l.Store.Load(l.Spec.Name)
	if errors.Is(err, state.ErrNoLab) {
		return l.Store.Remove(l.Spec.Name)
	}
	if err != nil {
		return err
	}
	if old.Running() {
		return fmt.Errorf("%w: %s", ErrRunning, l.Spec.Name)
	}
	if err := old.Stop(stopLimit); err != nil {
		return err
	}
	return l.Store.Remove(l.Spec.Name)
}

// describe completes and stores the description, the secrets and the kubeconfig.
func (l *launch) describe() error {
	s := &l.lab.Spec
	s.Dir = l.Store.Dir(s.Name)
	if err := s.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	if err := l.keepSelf(); err != nil {
		return err
	}
	var err error
	if l.lab.Hierarchies, err = cgroup.Read(); err != nil {
		return err
	}
	l.listener, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return fmt.Errorf("listen on loopback: %w", err)
	}
	s.RelayPort = l.listener.Addr().(*net.TCPAddr).Port
	if l.secrets, err = pki.NewLab(*s, time.Now()); err != nil {
		return err
	}
	if l.api, err = kubeapi.New(s.HostAPIServer(), l.secrets.CA, l.secrets.Admin); err != nil {
		return err
	}
	config := pki.Kubeconfig("theseus-lab-"+s.Name, s.HostAPIServer(), l.secrets.CA, l.secrets.Admin)
	if err := os.WriteFile(Kubeconfig(*s), config, 0o600); err != nil {
		return err
	}
	return l.Store.Save(l.lab)
}

// Kubeconfig is the path of the administrator's kubeconfig for programs on the host.
func Kubeconfig(l spec.Lab) string { return l.Dir + "/kubeconfig" }

// ControlSocket is where the outer process listens for commands.
func ControlSocket(l spec.Lab) string { return l.Dir + "/control.sock" }
