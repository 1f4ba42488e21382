package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// adoptDir holds the records of pods that are moved or have moved, below Root, and bridgeFile what was changed
// for all of them. A reboot leaves them: the former network's reservations outlast it too.
const (
	adoptDir   = "var/lib/theseus/adopt"
	bridgeFile = adoptDir + "/node.json"
)

// otherWait bounds how long another agent's moves are waited for.
const otherWait = time.Minute

// endWait bounds how long a pod that could not be moved is given to end: its object goes before its sandbox does, and
// then the target's plugin knows no such pod.
const endWait = 15 * time.Second

// adoptable looks at every pod that adopt would move.
func (n *Node) adoptable(_ context.Context, args step.AdoptArgs) (Answer, error) {
	job, err := n.job(args)
	if err != nil {
		return Answer{}, err
	}
	refused := 0
	for i := range job.pods {
		record, err := n.candidate(&job.pods[i], job)
		outcome := job.pods[i].outcome(step.AdoptReady, nil)
		if record != nil {
			outcome = record.Outcome(step.AdoptReady)
		}
		if err != nil {
			refused++
			outcome.State, outcome.Reason = step.AdoptRefused, err.Error()
		}
		job.result.Pods = append(job.result.Pods, outcome)
	}
	message := fmt.Sprintf("%d pods can be moved from %s to %s, %d cannot",
		len(job.pods)-refused, job.from.Network, job.to.Network, refused)
	if job.result.Refused != "" {
		message = job.result.Refused
	}
	return answer(false, message, job.result)
}

// adopt moves the pods.
func (n *Node) adopt(ctx context.Context, args step.AdoptArgs) (Answer, error) {
	done, err := n.exclusive(ctx)
	if err != nil {
		return Answer{}, err
	}
	defer done()
	resumed, err := n.resume(ctx)
	if err != nil {
		return Answer{}, err
	}
	job, err := n.job(args)
	if err != nil {
		return Answer{}, err
	}
	if job.result.Refused != "" {
		got, _ := answer(false, "", job.result)
		return got, errors.New(job.result.Refused)
	}
	for _, outcome := range resumed {
		if outcome.State == step.AdoptStuck || outcome.State == step.AdoptGone {
			job.result.Pods = append(job.result.Pods, outcome)
		}
	}
	if err := n.prepareHost(args.From.Bridge, args.To.Bridge); err != nil {
		return Answer{}, err
	}
	var moved []step.AdoptOutcome
	err = n.loosely(ctx, originsOf(n.described(job.pods)), func() error {
		moved = n.moveAll(ctx, job, args)
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	job.result.Pods = append(append(job.result.Pods, moved...), job.already...)
	if err := n.tidyHost(); err != nil {
		return Answer{}, err
	}
	count := map[step.AdoptState]int{}
	var failed []string
	for _, outcome := range job.result.Pods {
		count[outcome.State]++
		if slices.Contains([]step.AdoptState{step.AdoptRefused, step.AdoptUndone, step.AdoptStuck}, outcome.State) {
			failed = append(failed,
				fmt.Sprintf("%s/%s: %s (%s)", outcome.Namespace, outcome.Name, outcome.State, outcome.Reason))
		}
	}
	message := fmt.Sprintf("%d pods moved from %s to %s, %d were there",
		count[step.AdoptMoved], job.from.Network, job.to.Network, count[step.AdoptAlready])
	got, err := answer(count[step.AdoptMoved] > 0, message, job.result)
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("%s; not moved: %s", message, strings.Join(failed, "; "))
	}
	return got, err
}

// described looks at pods; those that cannot be looked at are left out.
func (n *Node) described(pods []sandbox) []*adoption.Record {
	var all []*adoption.Record
	for i := range pods {
		if record, _, err := n.describe(&pods[i]); err == nil {
			all = append(all, record)
		}
	}
	return all
}

// moveAll moves the pods of a job, a few at a time, and returns what became of them in the job's order. Plugins
// mostly compute, so with more pods at a time than processors each would take longer, and all of them hardly less.
func (n *Node) moveAll(ctx context.Context, job *job, args step.AdoptArgs) []step.AdoptOutcome {
	outcomes := make([]step.AdoptOutcome, len(job.pods))
	slots := make(chan struct{}, min(args.AtOnce(), runtime.GOMAXPROCS(0)))
	ready := &chains{n: n}
	var working sync.WaitGroup
	for i := range job.pods {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			outcomes[i] = n.move(ctx, &job.pods[i], job, ready)
		})
	}
	working.Wait()
	return outcomes
}

// move moves one pod. One that could not be moved as it ends is gone.
func (n *Node) move(ctx context.Context, s *sandbox, job *job, ready *chains) step.AdoptOutcome {
	outcome := n.attempt(ctx, s, job, ready)
	if (outcome.State == step.AdoptRefused || outcome.State == step.AdoptUndone) && n.ends(ctx, s) {
		outcome.State, outcome.Reason, outcome.Network, outcome.Link = step.AdoptGone, "", "", ""
	}
	return outcome
}

func (n *Node) attempt(ctx context.Context, s *sandbox, job *job, ready *chains) step.AdoptOutcome {
	if ctx.Err() != nil {
		return s.outcome(step.AdoptRefused, ctx.Err())
	}
	record, err := n.candidate(s, job)
	if errors.Is(err, errNoSpace) {
		return s.outcome(step.AdoptGone, nil)
	}
	if err != nil {
		return s.outcome(step.AdoptRefused, err)
	}
	h := &hands{n: n, ready: ready}
	probe := h.startGap(record)
	state, err := adoption.Move(ctx, h, record)
	if probe != nil {
		record.Gap = probe.finish(h.flipped)
		if state == step.AdoptMoved && !record.Release {
			err = errors.Join(err, n.writeRecord(record))
		}
	}
	outcome := record.Outcome(state)
	if err != nil {
		outcome.Reason = oneLine(err.Error())
	}
	return outcome
}

// ends waits for a sandbox to be gone, and says whether it is.
func (n *Node) ends(ctx context.Context, s *sandbox) bool {
	until := time.Now().Add(endWait)
	for n.lives(s) {
		if n.hasty || ctx.Err() != nil || time.Now().After(until) {
			return false
		}
		_ = outage.Sleep(ctx, readyPoll)
	}
	return true
}

// outcome is what is known of a pod that has no record.
func (s *sandbox) outcome(state step.AdoptState, reason error) step.AdoptOutcome {
	out := step.AdoptOutcome{Namespace: s.arg("K8S_POD_NAMESPACE"), Name: s.arg("K8S_POD_NAME"),
		UID: s.arg("K8S_POD_UID"), Sandbox: s.ID, State: state, Network: s.Network}
	if reason != nil {
		out.Reason = reason.Error()
	}
	return out
}

// job is what one adopt has to do.
type job struct {
	from, to adoption.Side
	release  bool
	pods     []sandbox
	already  []step.AdoptOutcome
	records  map[string]*adoption.Record
	result   step.AdoptResult
}

// job finds the pods that are asked for.
func (n *Node) job(args step.AdoptArgs) (*job, error) {
	from, err := n.side(args.From)
	if err != nil {
		return nil, err
	}
	to, err := n.side(args.To)
	if err != nil {
		return nil, err
	}
	if from.Network == to.Network {
		return nil, fmt.Errorf("both networks are called %s", from.Network)
	}
	j := &job{from: from, to: to, release: args.Release, result: step.AdoptResult{Node: n.Name}}
	if err := renames(); err != nil && !n.parks() {
		j.result.Refused = "this node cannot move pods: " + err.Error()
	}
	if j.records, err = n.records(); err != nil {
		return nil, err
	}
	all, err := n.sandboxes()
	if err != nil {
		return nil, err
	}
	on := map[string]string{} // sandbox to the network that it is on
	for _, s := range all {
		if record := j.records[s.ID]; record != nil {
			on[s.ID] = record.Outcome("").Network
		} else if s.Network == to.Network && on[s.ID] == "" || s.Network == from.Network {
			on[s.ID] = s.Network
		}
	}
	named := map[string]bool{}
	for _, s := range all {
		if !adoption.Wanted(args, s.arg("K8S_POD_NAMESPACE"), s.arg("K8S_POD_NAME")) || !n.lives(&s) {
			continue
		}
		switch {
		case s.Network == from.Network && on[s.ID] == from.Network:
			j.pods = append(j.pods, s)
		case s.Network == to.Network && on[s.ID] == to.Network:
			j.already = append(j.already, s.outcome(step.AdoptAlready, nil))
		default:
			continue
		}
		named[s.arg("K8S_POD_NAMESPACE")+"/"+s.arg("K8S_POD_NAME")] = true
	}
	for _, pod := range args.Pods {
		if !named[pod] && !slices.Contains(args.Skip, pod) {
			return nil, fmt.Errorf("no pod %s on %s or %s is on this node", pod, from.Network, to.Network)
		}
	}
	return j, nil
}

// lives says whether a sandbox's namespace is there.
func (n *Node) lives(s *sandbox) bool {
	if s.NetNS == "" {
		return s.lost
	}
	in, err := n.enter(s.NetNS)
	if err != nil {
		return !errors.Is(err, errNoSpace) // what cannot be looked at is refused by name
	}
	in.close()
	return true
}

// candidate is the record of a move that can begin; the error says why it cannot.
func (n *Node) candidate(s *sandbox, job *job) (*adoption.Record, error) {
	before := job.records[s.ID]
	if before != nil && before.Phase != adoption.Moved {
		return nil, errors.New("an earlier move of it has not ended")
	}
	record, pod, err := n.describe(s)
	if err != nil {
		return nil, err
	}
	record.From, record.To, record.Release, record.Before = job.from, job.to, job.release, before
	record.From.List = s.List // what it was made with, which need not be what is in the file now
	record.Phase = adoption.Pinning
	if why := adoption.Refusals(pod, record.From, record.To); len(why) > 0 {
		return record, errors.New(strings.Join(why, "; "))
	}
	if n.parks() && record.From.Bridge != "" {
		bridge, err := linkOf(record.From.Bridge)
		if err == nil {
			err = parkable(bridge)
		}
		if err != nil {
			return record, err
		}
	}
	if record.Own, err = n.reserved(record); err != nil {
		return record, err
	}
	if err := n.saveFiles(record); err != nil {
		return record, err
	}
	return record, n.savedParameters(record)
}

// reserved says whether the target's host-local holds the address for this very sandbox.
func (n *Node) reserved(record *adoption.Record) (bool, error) {
	if record.To.Reservations == "" {
		return false, nil
	}
	text, err := os.ReadFile(filepath.Join(n.Root, record.To.Reservations, record.Address))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read a reservation: %w", err)
	}
	holder, _, _ := strings.Cut(string(text), "\n")
	if holder = strings.TrimSpace(holder); holder != record.Sandbox {
		return false, fmt.Errorf("%s is reserved for the sandbox %s on the target", record.Address, holder)
	}
	return true, nil
}

// savedParameters reads what a move changes in the pod.
func (n *Node) savedParameters(record *adoption.Record) error {
	in, err := n.enter(record.NetNS)
	if err != nil {
		return err
	}
	defer in.close()
	record.Parameters = map[string]string{}
	return in.do(func() error {
		for _, name := range []string{"all/rp_filter", "default/rp_filter", record.Interface + "/rp_filter",
			"default/arp_ignore", record.Interface + "/arp_ignore"} {
			value, err := readParameter(filepath.Join(n.Sys, confParameters, name))
			if err != nil {
				return fmt.Errorf("read the pod's kernel parameters: %w", err)
			}
			record.Parameters[name] = value
		}
		return nil
	})
}

// Resume ends the moves that a former agent left half done. The agent calls it when it starts; every verb about
// moves does so too.
func (n *Node) Resume(ctx context.Context) ([]step.AdoptOutcome, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	done, err := n.exclusive(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return n.resume(ctx)
}

// exclusive waits until no other agent moves pods of this node, and keeps others from it until the returned function
// is called or this process ends: what one agent is about to do, another would take for left half done. The
// lock is on the node's root itself, so that it leaves nothing. Meanwhile the source's routes are kept, since moves
// take long.
func (n *Node) exclusive(ctx context.Context) (done func(), err error) {
	root, err := os.Open(n.Root)
	if err != nil {
		return nil, fmt.Errorf("lock the node: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, otherWait)
	defer cancel()
	for {
		err := unix.Flock(int(root.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			kept := n.keepMeanwhile()
			return func() { kept(); _ = root.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil {
			_ = root.Close()
			return nil, fmt.Errorf("another agent is moving pods of this node: %w", errors.Join(err, ctx.Err()))
		}
		_ = outage.Sleep(ctx, readyPoll)
	}
}

func (n *Node) resume(ctx context.Context) ([]step.AdoptOutcome, error) {
	if _, err := os.Stat(filepath.Join(n.Root, adoptDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	records, err := n.records()
	if err != nil {
		return nil, err
	}
	all := sorted(records)
	unfinished := slices.DeleteFunc(slices.Clone(all), func(r *adoption.Record) bool {
		return r.Phase == adoption.Moved
	})
	var outcomes []step.AdoptOutcome
	err = n.loosely(ctx, originsOf(unfinished), func() error {
		h := &hands{n: n, ready: &chains{n: n}}
		for _, record := range all {
			state, err := adoption.Resume(ctx, h, record)
			outcome := record.Outcome(state)
			if err != nil {
				outcome.Reason = oneLine(err.Error())
			}
			outcomes = append(outcomes, outcome)
		}
		return nil
	})
	return outcomes, err
}

// settle lets a network give back what it holds for pods that have left it, and for those that are gone.
func (n *Node) settle(ctx context.Context, args step.SettleArgs) (Answer, error) {
	side, err := n.side(args.Network)
	if err != nil {
		return Answer{}, err
	}
	done, err := n.exclusive(ctx)
	if err != nil {
		return Answer{}, err
	}
	defer done()
	if _, err := n.resume(ctx); err != nil {
		return Answer{}, err
	}
	records, err := n.records()
	if err != nil {
		return Answer{}, err
	}
	result := step.AdoptResult{Node: n.Name}
	h := &hands{n: n}
	var errs []error
	for _, record := range sorted(records) {
		if record.From.Network != side.Network || record.Phase != adoption.Moved {
			continue
		}
		outcome := record.Outcome(step.AdoptSettled)
		record.Before = nil
		err := h.Release(ctx, record, record.From)
		if err == nil {
			err = n.forgetRecord(record)
		}
		if err != nil {
			outcome.State, outcome.Reason = step.AdoptStuck, oneLine(err.Error())
			errs = append(errs, fmt.Errorf("%s/%s: %w", record.Namespace, record.Name, err))
		}
		result.Pods = append(result.Pods, outcome)
	}
	gone, err := n.settleGone(ctx, side)
	result.Pods = append(result.Pods, gone...)
	errs = append(errs, err, n.tidyHost())
	kept, err := linger(args.Links)
	errs = append(errs, err)
	got, err := answer(len(result.Pods)+len(kept) > 0, fmt.Sprintf("%s holds nothing more for %d pods%s",
		side.Network, len(result.Pods), lingering(kept)), result)
	return got, errors.Join(append(errs, err)...)
}

// settleGone does so for sandboxes that ended while another network's configuration was the current one: then
// the runtime asked that one alone.
func (n *Node) settleGone(ctx context.Context, side adoption.Side) ([]step.AdoptOutcome, error) {
	all, err := n.sandboxes()
	if err != nil {
		return nil, err
	}
	var outcomes []step.AdoptOutcome
	var errs []error
	for _, s := range all {
		if s.Network != side.Network || n.lives(&s) {
			continue
		}
		record := &adoption.Record{Sandbox: s.ID, Interface: s.Interface, CNIArgs: s.Args, Capabilities: s.Capabilities}
		if err := n.del(ctx, record, adoption.Side{Network: s.Network, List: s.List}, ""); err != nil {
			errs = append(errs, err)
			continue
		}
		outcomes = append(outcomes, s.outcome(step.AdoptGone, nil))
	}
	return outcomes, errors.Join(errs...)
}

func sorted(records map[string]*adoption.Record) []*adoption.Record {
	var all []*adoption.Record
	for _, record := range records {
		all = append(all, record)
	}
	slices.SortFunc(all, func(a, b *adoption.Record) int { return cmp.Compare(a.Sandbox, b.Sandbox) })
	return all
}

// recordFile is where a sandbox's record is; "pod-" keeps it apart from the rest of the folder.
func (n *Node) recordFile(sandbox string) string {
	return filepath.Join(n.Root, adoptDir, "pod-"+sandbox+".json")
}

func (n *Node) records() (map[string]*adoption.Record, error) {
	files, err := names(filepath.Join(n.Root, adoptDir))
	if err != nil {
		return nil, err
	}
	records := map[string]*adoption.Record{}
	for _, file := range files {
		if !strings.HasPrefix(file, "pod-") || !strings.HasSuffix(file, ".json") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(n.Root, adoptDir, file))
		if err != nil {
			return nil, fmt.Errorf("read the record of a move: %w", err)
		}
		record := &adoption.Record{}
		if err := json.Unmarshal(text, record); err != nil {
			return nil, fmt.Errorf("read the record of a move from %s: %w", file, err)
		}
		records[record.Sandbox] = record
	}
	return records, nil
}

func (n *Node) writeRecord(record *adoption.Record) error {
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("write the record of a move: %w", err)
	}
	return n.writeState(n.recordFile(record.Sandbox), text)
}

func (n *Node) writeState(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("write the record of a move: %w", err)
	}
	if err := writeDurably(file, text); err != nil {
		return fmt.Errorf("write the record of a move: %w", err)
	}
	return nil
}

// forgetRecord puts the record before it in its place, or removes it.
func (n *Node) forgetRecord(record *adoption.Record) error {
	if record.Before != nil {
		return n.writeRecord(record.Before)
	}
	if err := os.Remove(n.recordFile(record.Sandbox)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of a move: %w", err)
	}
	return nil
}

// errBusy says that this kernel renames no interface that is up.
var errBusy = errors.New("its kernel cannot rename an interface in use, as Linux can from 6.2 on")

// renames finds out whether this kernel renames an interface that is up by doing so in a network namespace that exists
// for that alone.
var renames = sync.OnceValue(func() error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the namespace
		failed <- func() error {
			own, err := netns.New()
			if err != nil {
				return fmt.Errorf("make a network namespace: %w", err)
			}
			defer own.Close()
			handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return fmt.Errorf("open netlink: %w", err)
			}
			defer handle.Close()
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "theseus0"
			link := &netlink.Veth{LinkAttrs: attrs, PeerName: "theseus1"}
			if err := handle.LinkAdd(link); err != nil {
				return fmt.Errorf("make a veth: %w", err)
			}
			if err := handle.LinkSetUp(link); err != nil {
				return fmt.Errorf("use a veth: %w", err)
			}
			if err := handle.LinkSetName(link, "theseus2"); errors.Is(err, unix.EBUSY) {
				return errBusy
			} else if err != nil {
				return fmt.Errorf("rename a veth: %w", err)
			}
			return nil
		}()
	}()
	return <-failed
})

// bridges is what was changed on the node for all moves: kernel parameters with their former values.
type bridges struct {
	Former map[string]string `json:"former"`
}

// prepareHost makes the bridges of both networks answer ARP for pods that are not on them, at once, and not mind
// where packets come from; and it sends the host's traffic to the table of held routes first. A bridge that is not
// there yet is prepared when a plugin has made it.
func (n *Node) prepareHost(names ...string) error {
	n.bridgeMu.Lock()
	defer n.bridgeMu.Unlock()
	state, err := n.bridges()
	if err != nil {
		return err
	}
	wanted := map[string]string{}
	for _, bridge := range names {
		for name, value := range map[string]string{
			"net/ipv4/conf/" + bridge + "/rp_filter":    strconv.Itoa(rpLoose),
			"net/ipv4/conf/" + bridge + "/proxy_arp":    "1",
			"net/ipv4/neigh/" + bridge + "/proxy_delay": "0",
		} {
			former, err := readParameter(filepath.Join(n.Sys, name))
			if bridge == "" || errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read a kernel parameter: %w", err)
			}
			wanted[name] = value
			if _, known := state.Former[name]; !known {
				state.Former[name] = former
			}
		}
	}
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("write what was changed: %w", err)
	}
	if err := n.writeState(filepath.Join(n.Root, bridgeFile), text); err != nil {
		return err
	}
	for name, value := range wanted {
		if err := writeParameter(filepath.Join(n.Sys, name), value); err != nil {
			return fmt.Errorf("set a kernel parameter: %w", err)
		}
	}
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	return addRule(host)
}

func (n *Node) bridges() (*bridges, error) {
	state := &bridges{Former: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(n.Root, bridgeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was changed: %w", err)
	}
	if err := json.Unmarshal(text, state); err != nil || state.Former == nil {
		return nil, fmt.Errorf("read what was changed from %s: %w", bridgeFile, err)
	}
	return state, nil
}

// tidyHost takes prepareHost back when no record needs it any more.
func (n *Node) tidyHost() error {
	records, err := n.records()
	if err != nil || len(records) > 0 {
		return err
	}
	state, err := n.bridges()
	if err != nil {
		return err
	}
	for name, value := range state.Former {
		err := writeParameter(filepath.Join(n.Sys, name), value)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("restore a kernel parameter: %w", err)
		}
	}
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	left, err := pinnedRoutes(host)
	if err != nil {
		return err
	}
	for _, route := range left {
		if err := host.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("empty the host's table: %w", err)
		}
	}
	if err := removeRule(host); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(n.Root, adoptDir)); err != nil {
		return fmt.Errorf("remove the records: %w", err)
	}
	return nil
}
