package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/fabric"
	"github.com/theseus-cni/theseus/lab/internal/image"
	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/outer"
	"github.com/theseus-cni/theseus/lab/internal/preload"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/state"
)

// Build makes the programs and the images of a lab, or finds them in the cache, and writes into its
// description where they are.
func Build(ctx context.Context, cache *build.Cache, s *spec.Lab, out io.Writer) (images int, err error) {
	if s.KubeBinary, err = cache.Binary(ctx, build.Kube(s.Kubernetes)); err != nil {
		return 0, err
	}
	s.Programs = map[string]string{}
	for _, program := range build.RuntimePrograms(s.Runtime) {
		if s.Programs[program], err = cache.Binary(ctx, program); err != nil {
			return 0, err
		}
	}
	all, err := image.All(ctx, cache, s.Network, s.Calico)
	if err != nil {
		return 0, err
	}
	if s.Network == network.Cilium { // Helm renders its chart later, when there may be no network access any more
		if _, err := cache.Binary(ctx, "helm"); err != nil {
			return 0, err
		}
	}
	var fixed []spec.Image
	for _, i := range all {
		img := spec.Image{Name: i.Name, Tar: i.Tar}
		if strings.HasPrefix(i.Name, "theseus.dev/") {
			s.Images = append(s.Images, img) // these change with every build
		} else {
			fixed = append(fixed, img)
		}
	}
	if s.Template, err = preload.Template(ctx, cache.Dir(), fixed, out); err != nil {
		return 0, fmt.Errorf("unpack the images: %w", err)
	}
	return len(all), nil
}

// Missing are the programs of others that Build would have to build for a lab. Those of this repository it always hands
// to go build.
func Missing(ctx context.Context, cache *build.Cache, s spec.Lab) (missing []string, err error) {
	names, err := image.Programs(s.Network, s.Calico, cache.Source())
	if err != nil {
		return nil, err
	}
	names = append(names, build.Kube(s.Kubernetes))
	if s.Network == network.Cilium {
		names = append(names, "helm")
	}
	names = append(names, build.RuntimePrograms(s.Runtime)...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		has, err := cache.Has(ctx, name)
		if err != nil {
			return nil, err
		}
		if !has {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// prepare builds or finds the programs and images.
func (l *launch) prepare(ctx context.Context) error {
	l.lab.Spec = l.Spec
	images, err := Build(ctx, l.Cache, &l.lab.Spec, l.Out)
	if err != nil {
		return err
	}
	l.say("programs and %d images are ready", images)
	return nil
}

// startOuter starts the outer process and waits until it says that the fabric, the control plane
// and the nodes have been started.
func (l *launch) startOuter(ctx context.Context) error {
	relay, err := l.listener.File()
	if err != nil {
		return err
	}
	defer relay.Close()
	defer l.listener.Close()
	configR, configW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer configR.Close()
	defer configW.Close()
	readyR, readyW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer readyR.Close()
	defer readyW.Close()
	if err := os.MkdirAll(filepath.Join(l.lab.Spec.Dir, "logs"), 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(l.lab.Spec.Dir, "logs", "outer.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// Not CommandContext: the lab outlives the command that made it.
	cmd := exec.Command(l.lab.Spec.LabBinary, outer.Stage)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{configR, relay, readyW}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: outer.CloneFlags, Setsid: true}
	if err := outrun(); err != nil {
		return fmt.Errorf("raise the generation of routes (the lab needs root): %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the lab (it needs root): %w", err)
	}
	l.lab.Pid, l.lab.Born = cmd.Process.Pid, state.Born(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // so that it does not become a zombie while this command runs
	if err := l.Store.Save(l.lab); err != nil {
		return err
	}
	readyW.Close()
	configR.Close()
	config := outer.Config{Lab: l.lab.Spec, Secrets: l.secrets, Hierarchies: l.lab.Hierarchies}
	if err := json.NewEncoder(configW).Encode(config); err != nil {
		return fmt.Errorf("configure the lab: %w", err)
	}
	return l.awaitOuter(ctx, readyR)
}

// outrun does for the machine's network namespace, which is the kernel's initial one, what theseus-agent does for that
// of its node (outrun in internal/node): the nodes of a lab are in namespaces of their own, where that has no effect.
func outrun() error {
	file, err := os.OpenFile("/proc/sys/net/ipv4/route/flush", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	for i := 0; err == nil && i < 1024; i++ {
		_, err = file.WriteAt([]byte("1"), 0)
	}
	return err
}

func (l *launch) awaitOuter(ctx context.Context, ready *os.File) error {
	stop := context.AfterFunc(ctx, func() { ready.Close() })
	defer stop()
	answer, err := bufio.NewReader(ready).ReadString('\n')
	switch answer = strings.TrimSpace(answer); {
	case ctx.Err() != nil:
		return ctx.Err()
	case answer == "ok":
		l.say("fabric, control plane and %s started", spec.Count(l.lab.Spec.Nodes, "node"))
		return nil
	case answer != "":
		return fmt.Errorf("start the lab: %s", answer)
	default:
		return fmt.Errorf("the lab ended while it started: %w", err)
	}
}

// keepSelf copies this program into the lab's directory: the lab keeps using the copy when the original
// is rebuilt.
func (l *launch) keepSelf() error {
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	l.lab.Spec.LabBinary = filepath.Join(l.lab.Spec.Dir, "theseus-lab")
	return os.WriteFile(l.lab.Spec.LabBinary, raw, 0o755)
}

// join connects the new lab's bridge to that of every other lab.
func (l *launch) join(others []state.Lab) error {
	for _, o := range others {
		err := fabric.Join(
			fabric.End{Pid: l.lab.Pid, Port: "to-" + o.Spec.Name},
			fabric.End{Pid: o.Pid, Port: "to-" + l.lab.Spec.Name},
		)
		if err != nil {
			return err
		}
		l.say("joined with lab %s", o.Spec.Name)
	}
	return nil
}
