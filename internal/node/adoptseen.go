package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// resultsDir is where libcni, and so every container runtime that uses it, remembers each ADD.
const resultsDir = "var/lib/cni/results"

// spacesDir is where container runtimes keep pods' network namespaces.
const spacesDir = "run/netns"

// maxResult bounds one such file.
const maxResult = 1 << 20

// sandbox is one ADD that the runtime remembers.
type sandbox struct {
	ID           string          `json:"containerId"`
	Interface    string          `json:"ifName"`
	Network      string          `json:"networkName"`
	List         []byte          `json:"config"`
	NetNS        string          `json:"netns"`
	Args         [][2]string     `json:"cniArgs"`
	Capabilities map[string]any  `json:"capabilityArgs"`
	Kind         string          `json:"kind"`
	Result       json.RawMessage `json:"result"`
	// lost says that it is not known which of several sandboxes its network namespace is of.
	lost bool
}

// arg is one of the arguments that the runtime gave, such as K8S_POD_NAME.
func (s *sandbox) arg(name string) string {
	for _, pair := range s.Args {
		if pair[0] == name {
			return pair[1]
		}
	}
	return ""
}

// sandboxes are all ADDs that are remembered, those of sandboxes that are gone too. A file that is none of
// libcni's is left out.
func (n *Node) sandboxes() ([]sandbox, error) {
	dir := filepath.Join(n.Root, resultsDir)
	files, err := names(dir)
	if err != nil {
		return nil, err
	}
	var all []sandbox
	for _, file := range files {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxResult {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what the runtime remembers: %w", err)
		}
		var s sandbox
		if json.Unmarshal(text, &s) != nil || s.Kind != "cniCacheV1" || s.ID == "" ||
			s.Interface == "" || s.Network == "" ||
			strings.ContainsRune(s.ID, '/') {
			continue
		}
		if s.NetNS == "" { // libcni before v1.2 kept it in the result alone
			s.NetNS = sandboxPath(s.Result, s.Interface)
		}
		all = append(all, s)
	}
	return all, n.locate(all)
}

// locate finds the network namespaces of sandboxes of which the runtime remembers none: libcni before v1.2, which
// containerd v1 has, knows them from the plugin's answer alone, and not every plugin tells. The addresses that they
// were given show where they are; one that several sandboxes were given shows nothing.
func (n *Node) locate(all []sandbox) error {
	known := map[string]string{} // sandbox to namespace
	given := map[string]string{} // address to the one sandbox that has it
	missing := false
	for _, s := range all {
		missing = missing || s.NetNS == ""
		if s.NetNS != "" {
			known[s.ID] = s.NetNS
		}
		for _, address := range givenTo(s.Result) {
			if holder, taken := given[address]; taken && holder != s.ID {
				given[address] = ""
			} else if !taken {
				given[address] = s.ID
			}
		}
	}
	if !missing {
		return nil
	}
	spaces, err := names(filepath.Join(n.Root, spacesDir))
	if err != nil {
		return err
	}
	at := map[string]string{} // address to namespace
	for _, name := range spaces {
		path := filepath.Join("/", spacesDir, name)
		in, err := n.enter(path)
		if errors.Is(err, errNoSpace) {
			continue
		}
		if err != nil {
			return err
		}
		addresses, err := listed(func() ([]netlink.Addr, error) { return in.AddrList(nil, netlink.FAMILY_V4) })
		in.close()
		if err != nil {
			return fmt.Errorf("list the addresses of %s: %w", path, err)
		}
		for _, address := range addresses {
			at[address.IP.String()] = path
		}
	}
	for i := range all {
		s := &all[i]
		if s.NetNS == "" {
			s.NetNS = known[s.ID]
		}
		for _, address := range givenTo(s.Result) {
			if path := at[address]; s.NetNS == "" && path != "" {
				if s.lost = given[address] != s.ID; !s.lost {
					s.NetNS = path
				}
			}
		}
	}
	return nil
}

// givenTo are the addresses of the result of an ADD.
func givenTo(result json.RawMessage) []string {
	var r struct{ IPs []struct{ Address string } }
	if json.Unmarshal(result, &r) != nil {
		return nil
	}
	var all []string
	for _, ip := range r.IPs {
		address, _, _ := strings.Cut(ip.Address, "/")
		all = append(all, address)
	}
	return all
}

// sandboxPath finds the network namespace in the result of an ADD; "" when it is not there.
func sandboxPath(result json.RawMessage, name string) string {
	var r struct {
		Interfaces []struct{ Name, Sandbox string }
	}
	if json.Unmarshal(result, &r) != nil {
		return ""
	}
	for _, i := range r.Interfaces {
		if i.Name == name && i.Sandbox != "" {
			return i.Sandbox
		}
	}
	return ""
}

// space is a pod's network namespace with a socket in it.
type space struct {
	*netlink.Handle
	ns    netns.NsHandle
	inode uint64
}

// nsfs is the file system of namespaces.
const nsfs = 0x6e736673

// errNoSpace says that a network namespace does not exist any more.
var errNoSpace = errors.New("its network namespace is gone")

// enter opens the namespace at a path of the node. The socket stays in the namespace, so no thread has to.
func (n *Node) enter(path string) (*space, error) {
	if rest, ok := strings.CutPrefix(path, "/var/run/"); ok { // a link that would lead out of Root
		path = "/run/" + rest
	}
	full := filepath.Join(n.Root, path)
	if strings.HasPrefix(path, "/proc/") {
		full = path
	}
	fd, err := unix.Open(full, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, errNoSpace
		}
		return nil, fmt.Errorf("open the network namespace %s: %w", path, err)
	}
	var kind unix.Statfs_t
	var stat unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &kind), unix.Fstat(fd, &stat)); err != nil || kind.Type != nsfs {
		_ = unix.Close(fd)
		return nil, errors.Join(errNoSpace, err)
	}
	ns := netns.NsHandle(fd)
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		_ = ns.Close()
		return nil, fmt.Errorf("enter the network namespace %s: %w", path, err)
	}
	return &space{handle, ns, stat.Ino}, nil
}

func (s *space) close() {
	s.Close()
	_ = s.ns.Close()
}

// do calls back on a thread that is in the namespace.
func (s *space) do(call func() error) error {
	done := make(chan error, 1)
	go func() {
		// The thread is never unlocked when it cannot go back, so that Go ends it.
		runtime.LockOSThread()
		original, err := netns.Get()
		if err != nil {
			done <- err
			return
		}
		defer original.Close()
		if err := netns.Set(s.ns); err != nil {
			done <- err
			return
		}
		err = call()
		if netns.Set(original) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// linkAt finds an interface by its index; nil when there is none.
func linkAt(handle *netlink.Handle, index int) (netlink.Link, error) {
	link, err := handle.LinkByIndex(index)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the interface %d: %w", index, err)
	}
	return link, nil
}

// linkIn finds an interface by its name; nil when there is none.
func linkIn(handle *netlink.Handle, name string) (netlink.Link, error) {
	link, err := handle.LinkByName(name)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the interface %s: %w", name, err)
	}
	return link, nil
}

// describe looks at a pod before anything is touched: the record of a move, but for its sides' lists, and what
// decides whether it can be moved.
func (n *Node) describe(s *sandbox) (*adoption.Record, adoption.Pod, error) {
	pod := adoption.Pod{Interface: s.Interface, Capabilities: s.Capabilities}
	if s.NetNS == "" {
		return nil, pod, errors.New("the runtime does not remember its network namespace")
	}
	in, err := n.enter(s.NetNS)
	if err != nil {
		return nil, pod, err
	}
	defer in.close()
	record := &adoption.Record{
		Sandbox: s.ID, Namespace: s.arg("K8S_POD_NAMESPACE"), Name: s.arg("K8S_POD_NAME"), UID: s.arg("K8S_POD_UID"),
		NetNS: s.NetNS, Inode: in.inode, Interface: s.Interface, CNIArgs: s.Args, Capabilities: s.Capabilities,
	}
	all, err := listed(in.LinkList)
	if err != nil {
		return nil, pod, fmt.Errorf("list its interfaces: %w", err)
	}
	var own netlink.Link
	for _, link := range all {
		attrs := link.Attrs()
		if attrs.Flags&net.FlagLoopback != 0 || attrs.Flags&net.FlagUp == 0 { // tunl0 and its like are there, but down
			continue
		}
		pod.Links = append(pod.Links, attrs.Name)
		if attrs.Name == s.Interface {
			own = link
		}
	}
	if own == nil {
		return nil, pod, fmt.Errorf("it has no interface %s that is up", s.Interface)
	}
	pod.Kind = own.Type()
	if record.Address, err = addresses(in, own, &pod); err != nil {
		return nil, pod, err
	}
	if err := podRoutes(in, own, record, &pod); err != nil {
		return nil, pod, err
	}
	return record, pod, n.hostEnd(own, record, &pod)
}

func addresses(in *space, own netlink.Link, pod *adoption.Pod) (string, error) {
	all, err := listed(func() ([]netlink.Addr, error) { return in.AddrList(own, netlink.FAMILY_ALL) })
	if err != nil {
		return "", fmt.Errorf("list its addresses: %w", err)
	}
	four := ""
	for _, a := range all {
		pod.Addresses = append(pod.Addresses, a.IPNet.String())
		if a.IP.To4() != nil {
			four = a.IP.String()
		}
	}
	return four, nil
}

// podRoutes reads the main table and counts rules beyond the usual ones and our own.
func podRoutes(in *space, own netlink.Link, record *adoption.Record, pod *adoption.Pod) error {
	rules, err := listed(func() ([]netlink.Rule, error) { return in.RuleList(netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list its rules: %w", err)
	}
	for _, rule := range rules {
		if !slices.Contains([]int{unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT, pinTable},
			rule.Table) {
			pod.Rules++
		}
	}
	all, err := listed(func() ([]netlink.Route, error) {
		return in.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list its routes: %w", err)
	}
	for _, route := range all {
		saved, plain := saveRoute(route)
		if !plain || route.LinkIndex != own.Attrs().Index {
			pod.Foreign = append(pod.Foreign, route.String())
			continue
		}
		record.Routes = append(record.Routes, saved)
	}
	return nil
}

// hostEnd finds the other end of the pod's interface, and how the host reaches the pod.
func (n *Node) hostEnd(own netlink.Link, record *adoption.Record, pod *adoption.Pod) error {
	attrs := own.Attrs()
	record.Old = adoption.Link{Index: attrs.Index, MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU}
	if pod.Kind != "veth" || record.Address == "" {
		return nil // it is refused for that
	}
	host, err := peer(own)
	if err != nil {
		return err
	}
	record.Old.Host, record.Old.HostIndex = host.Attrs().Name, host.Attrs().Index
	pod.Host = host.Attrs().Name
	if index := host.Attrs().MasterIndex; index != 0 {
		master, err := netlink.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("find the bridge of %s: %w", pod.Host, err)
		}
		pod.Master = master.Attrs().Name
	}
	route, err := hostRoute(record.Address)
	if err != nil || route == nil {
		return err
	}
	through, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return fmt.Errorf("find the interface %d: %w", route.LinkIndex, err)
	}
	pod.Through = through.Attrs().Name
	if route.Gw != nil {
		pod.Through = route.Gw.String()
	}
	record.Old.Through = route.LinkIndex
	if route.Src != nil {
		record.HostSource = route.Src.String()
	}
	return nil
}

// peer is the other end of a veth, on the host.
func peer(own netlink.Link) (netlink.Link, error) {
	host, err := netlink.LinkByIndex(own.Attrs().ParentIndex)
	if err != nil || host.Type() != "veth" || host.Attrs().ParentIndex != own.Attrs().Index {
		return nil, fmt.Errorf("the other end of %s is not on the host", own.Attrs().Name)
	}
	return host, nil
}

// side reads one network's configuration: the first of its files that is there.
func (n *Node) side(attachment step.Attachment) (adoption.Side, error) {
	told, err := n.folders()
	if err != nil {
		return adoption.Side{}, err
	}
	for _, name := range attachment.Conf {
		if name == "" || strings.ContainsRune(name, '/') {
			return adoption.Side{}, fmt.Errorf("%q is not a file name", name)
		}
		text, err := os.ReadFile(filepath.Join(n.Root, told.conf, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return adoption.Side{}, fmt.Errorf("read a network configuration: %w", err)
		}
		list, err := confList(text)
		if err != nil {
			return adoption.Side{}, fmt.Errorf("%s: %w", name, err)
		}
		return adoption.Side{Attachment: attachment, Network: list.Name, List: list.Bytes}, nil
	}
	return adoption.Side{}, fmt.Errorf("none of %s is in %s", strings.Join(attachment.Conf, ", "), told.Conf)
}
