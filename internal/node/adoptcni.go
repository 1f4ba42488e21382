package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// Limits of a network's plugins.
const (
	pluginTimeout = time.Minute // for one ADD or DEL of a whole list
	maxAnswer     = 1 << 20     // of what one prints, in bytes
	pluginNice    = 10          // within the agent's own share of the processors
)

// confList reads a network's configuration: a list, or one plugin alone.
func confList(text []byte) (*libcni.NetworkConfigList, error) {
	if err := checkConf(text); err != nil {
		return nil, err
	}
	var shape struct {
		Plugins json.RawMessage `json:"plugins"`
	}
	if json.Unmarshal(text, &shape) == nil && shape.Plugins == nil {
		one, err := libcni.ConfFromBytes(text)
		if err != nil {
			return nil, err
		}
		return libcni.ConfListFromConf(one)
	}
	list, err := libcni.ConfListFromBytes(text)
	if err == nil && (list.Name == "" || len(list.Plugins) == 0) {
		err = errors.New("it has no name or no plugins")
	}
	return list, err
}

// plugins runs a node's CNI plugins as its container runtime does: with the node's own root, and nothing of the
// agent's environment. It implements invoke.Exec.
type plugins struct {
	root  string
	slots chan struct{} // bounds how many run at a time
	version.PluginDecoder
}

// maxPlugins is how many plugins run at a time; each may start others.
const maxPlugins = 8

// FindInPath finds a plugin below the node's root and returns its path as it is there.
func (p *plugins) FindInPath(plugin string, paths []string) (string, error) {
	if plugin == "" || strings.ContainsRune(plugin, '/') {
		return "", fmt.Errorf("%q is no plugin's name", plugin)
	}
	for _, dir := range paths {
		if info, err := os.Stat(filepath.Join(p.root, dir, plugin)); err == nil && info.Mode().IsRegular() {
			return filepath.Join(dir, plugin), nil
		}
	}
	return "", fmt.Errorf("the plugin %s is not in %s", plugin, strings.Join(paths, ", "))
}

// ExecPlugin runs one plugin. It dies with the agent: a plugin that went on would work against the agent's
// successor.
func (p *plugins) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var out, errs bounded
	cmd := exec.CommandContext(ctx, path)
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, pair := range environ {
		if strings.HasPrefix(pair, "CNI_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if p.root != "/" {
		cmd.SysProcAttr.Chroot = p.root
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // delegates too
	cmd.WaitDelay = pipeWait
	runtime.LockOSThread() // Pdeathsig is about the thread that started it
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		// A plugin is big, and starts slowly: it must not keep the agent, and what it measures, from running.
		_ = unix.Setpriority(unix.PRIO_PGRP, cmd.Process.Pid, pluginNice)
		err = cmd.Wait()
	}
	name := filepath.Base(path)
	switch {
	case err == nil && !out.over:
		return out.Bytes(), nil
	case out.over:
		return nil, fmt.Errorf("%s: its answer is longer than %d bytes", name, maxAnswer)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not answer in time: %w", name, ctx.Err())
	}
	said := types.Error{}
	if json.Unmarshal(out.Bytes(), &said) == nil && said.Msg != "" {
		return nil, fmt.Errorf("%s: %s", name, oneLine(strings.TrimSpace(said.Msg+" "+said.Details)))
	}
	return nil, fmt.Errorf("%s: %w: %s", name, err, oneLine(errs.String()+" "+out.String()))
}

// bounded keeps the first part of what is written to it.
type bounded struct {
	bytes.Buffer
	over bool
}

func (b *bounded) Write(data []byte) (int, error) {
	if room := maxAnswer - b.Len(); len(data) > room {
		b.over = true
		b.Buffer.Write(data[:room])
		return len(data), nil
	}
	return b.Buffer.Write(data)
}

// ReadFrom keeps io.Copy from going round the bound.
func (b *bounded) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, r)
}

// cni is the node's plugins with the runtime's own memory of what they answered.
func (n *Node) cni() (*libcni.CNIConfig, error) {
	told, err := n.folders()
	if err != nil {
		return nil, err
	}
	return libcni.NewCNIConfigWithCacheDir(told.plugins, filepath.Join(n.Root, filepath.Dir(resultsDir)),
		&plugins{root: n.Root, slots: pluginSlots}), nil
}

// pluginSlots are the process's own: there is one node per process.
var pluginSlots = make(chan struct{}, maxPlugins)

// runtimeConf is what the runtime would give to the plugins, with an address where one is asked for.
func runtimeConf(record *adoption.Record, space, address string) *libcni.RuntimeConf {
	conf := &libcni.RuntimeConf{
		ContainerID: record.Sandbox, NetNS: space, IfName: record.Interface, CapabilityArgs: record.Capabilities,
	}
	ignore := false
	for _, pair := range record.CNIArgs {
		if pair[0] != "IP" {
			conf.Args = append(conf.Args, pair)
		}
		ignore = ignore || pair[0] == "IgnoreUnknown"
	}
	if address != "" {
		if !ignore { // every plugin of the list gets the argument, and most do not know it
			conf.Args = append(conf.Args, [2]string{"IgnoreUnknown", "1"})
		}
		conf.Args = append(conf.Args, [2]string{"IP", address})
	}
	return conf
}

// add asks the target's plugins for the pod's own address. Where that is still reserved for this very sandbox,
// host-local is given an empty folder for this one call: it would refuse what it holds, and must not let go of
// it for a moment.
func (n *Node) add(ctx context.Context, record *adoption.Record) error {
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	if err := claim(ctx, record); err != nil {
		return err
	}
	text := []byte(record.To.List)
	if record.Own {
		dir := n.spareDir(record)
		defer os.RemoveAll(filepath.Join(n.Root, dir))
		var err error
		if text, err = withDataDir(text, "/"+dir); err != nil {
			return err
		}
	}
	list, err := confList(text)
	if err != nil {
		return fmt.Errorf("the target's configuration: %w", err)
	}
	runner, err := n.cni()
	if err != nil {
		return err
	}
	conf := runtimeConf(record, record.NetNS, record.Address)
	result, err := runner.AddNetworkList(ctx, list, conf)
	if err != nil {
		return err
	}
	if record.Own {
		n.cacheTrueList(list.Name, record)
	}
	return checkAddress(result, record.Address)
}

// claim tells the target's own agent, where it wants that, that the sandbox has its address.
func claim(ctx context.Context, record *adoption.Record) error {
	if record.To.Claim == "" {
		return nil
	}
	address := strings.NewReplacer("{id}", record.Sandbox, "{address}", record.Address).Replace(record.To.Claim)
	where, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("claim %s: %w", record.Address, err)
	}
	if host, err := netip.ParseAddr(where.Hostname()); err != nil || !host.IsLoopback() {
		return fmt.Errorf("claim %s: %s is not on this node", record.Address, where.Host)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, address, nil)
	if err != nil {
		return fmt.Errorf("claim %s: %w", record.Address, err)
	}
	answer, err := new(http.Client).Do(request)
	if err != nil {
		return fmt.Errorf("claim %s: %w", record.Address, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusMultipleChoices {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
		return fmt.Errorf("claim %s: %s: %s", record.Address, answer.Status, oneLine(string(said)))
	}
	return nil
}

// cacheTrueList puts the list without the spare folder into the runtime's memory.
func (n *Node) cacheTrueList(network string, record *adoption.Record) {
	file := filepath.Join(n.Root, resultsDir, network+"-"+record.Sandbox+"-"+record.Interface)
	text, err := os.ReadFile(file)
	if err != nil {
		return // what is not remembered is read from net.d
	}
	var cached map[string]any
	if json.Unmarshal(text, &cached) != nil {
		return
	}
	cached["config"] = []byte(record.To.List)
	if text, err = json.Marshal(cached); err == nil {
		_ = writeDurably(file, text)
	}
}

func (n *Node) spareDir(record *adoption.Record) string {
	return filepath.Join(adoptDir, "ipam-"+record.Sandbox)
}

// withDataDir gives the first plugin's IPAM another folder.
func withDataDir(list []byte, dir string) ([]byte, error) {
	var conf map[string]any
	if err := json.Unmarshal(list, &conf); err != nil {
		return nil, fmt.Errorf("the target's configuration: %w", err)
	}
	all, _ := conf["plugins"].([]any)
	if len(all) == 0 {
		return nil, errors.New("the target's configuration names no plugin")
	}
	first, ok := all[0].(map[string]any)
	if !ok {
		return nil, errors.New("the target's first plugin is no object")
	}
	ipam, ok := first["ipam"].(map[string]any)
	if !ok {
		ipam = map[string]any{}
	}
	ipam["dataDir"] = dir
	first["ipam"] = ipam
	return json.Marshal(conf)
}

// checkAddress refuses an answer with any address but the pod's own.
func checkAddress(result types.Result, want string) error {
	got, err := types100.GetResult(result)
	if err != nil {
		return fmt.Errorf("the plugin's answer: %w", err)
	}
	for _, ip := range got.IPs {
		if ip.Address.IP.String() != want {
			return fmt.Errorf("the plugin assigned the address %s, not %s", ip.Address.IP, want)
		}
	}
	if len(got.IPs) == 0 {
		return errors.New("the plugin assigned no address")
	}
	return nil
}

// del asks one side's plugins to give back what they hold. Without a namespace they touch no interface, as CNI
// demands of them.
func (n *Node) del(ctx context.Context, record *adoption.Record, side adoption.Side, space string) error {
	list, err := confList(side.List)
	if err != nil {
		return fmt.Errorf("the configuration of %s: %w", side.Network, err)
	}
	runner, err := n.cni()
	if err != nil {
		return err
	}
	err = n.insist(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
		defer cancel()
		return runner.DelNetworkList(ctx, list, runtimeConf(record, space, ""))
	}, nil)
	if err != nil {
		return fmt.Errorf("give back at %s: %w", side.Network, err)
	}
	return nil
}
