package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// networks refuses to remove what is there under a name of the user's own unless it is a network's by its nature: a
// bridge that holds no interface of the host, and a folder in which host-local keeps addresses.
func (n *Node) networks(found step.Residue) error {
	var errs []error
	for _, name := range found.OwnLinks() {
		errs = append(errs, podBridge(name))
	}
	for _, name := range found.OwnPaths() {
		errs = append(errs, n.reservations(name))
	}
	return errors.Join(errs...)
}

// podBridge refuses an interface that is no bridge, a bridge with an interface of the host in it, and one that leads
// out.
func podBridge(name string) error {
	link, err := linkOf(name)
	if err != nil || link == nil {
		return err
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("%s is of type %s, and only a bridge of pods may have a name of its own", name, link.Type())
	}
	ports, err := listed(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	for _, port := range ports {
		if port.Attrs().MasterIndex == link.Attrs().Index && port.Type() != "veth" {
			return fmt.Errorf("the bridge %s has the port %s, which does not belong to a pod", name, port.Attrs().Name)
		}
	}
	all, err := routes()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(r netlink.Route) bool {
		_, narrower := destination(r)
		return !narrower && r.Type == unix.RTN_UNICAST && r.LinkIndex == link.Attrs().Index
	}) {
		return fmt.Errorf("the default route leads through the bridge %s", name)
	}
	return nil
}

// reservations refuses what is no folder with host-local's files alone: addresses, the last one given, and a lock.
func (n *Node) reservations(name string) error {
	root, err := os.OpenRoot(n.Root)
	if err != nil {
		return fmt.Errorf("open the node's root: %w", err)
	}
	defer root.Close()
	refused := fmt.Errorf("%s is not a folder that contains only addresses of pods", name)
	folder, err := root.Open(strings.TrimPrefix(filepath.Clean(name), "/"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errors.Join(refused, err)
	}
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return errors.Join(refused, err)
	}
	for _, entry := range entries {
		file := entry.Name()
		_, err := netip.ParseAddr(file)
		if !entry.Type().IsRegular() || err != nil && file != "lock" && !strings.HasPrefix(file, "last_reserved_ip.") {
			return refused
		}
	}
	return nil
}
