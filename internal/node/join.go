package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// stateFile holds the order of a joint phase below Root. It is where a reboot leaves it, because the
// phase goes on after one; part removes it.
const stateFile = "var/lib/theseus/join.json"

// rechoose is after how many checks the backends are looked for again.
const rechoose = 30

// order is a joint phase that is in force.
type order struct {
	Args step.JoinArgs `json:"args"`
	// Former are the values of rp_filter before they were loosened; interfaces that came later and were
	// loose from the start are not among them.
	Former map[string]int `json:"former,omitempty"`
	// Kept are the source's routes as they were.
	Kept []keptRoute `json:"kept,omitempty"`
}

// joint is what Keep remembers between two calls.
type joint struct {
	chosen map[family][]backend
	checks int
}

// Keep makes sure that a joint phase that is in force still holds, and says what it had to mend, or "" for
// nothing. Without a joint phase it does nothing. The agent calls it every second, also after a restart.
func (n *Node) Keep(ctx context.Context) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	in, err := n.order()
	if err != nil || in == nil {
		return "", err
	}
	return n.ensure(ctx, in)
}

func (n *Node) join(ctx context.Context, args step.JoinArgs) (Answer, error) {
	if _, err := exemptions(args); err != nil {
		return Answer{}, err
	}
	in, err := n.order()
	if err != nil {
		return Answer{}, err
	}
	if in == nil {
		in = &order{Former: map[string]int{}}
	}
	in.Args = args
	if len(in.Kept) == 0 {
		if in.Kept, err = sourceRoutes(args.Old, args.Keep); err != nil {
			return Answer{}, err
		}
	}
	if err := n.writeOrder(in); err != nil {
		return Answer{}, err
	}
	n.joint = joint{}
	mended, err := n.ensure(ctx, in)
	if err != nil {
		return Answer{}, err
	}
	if mended == "" {
		return Answer{Message: "joined already"}, nil
	}
	return Answer{Changed: true, Message: "joined: " + mended}, nil
}

// ensure makes the exemptions first and rp_filter loose, keeps the source's routes, and says what was changed.
func (n *Node) ensure(ctx context.Context, in *order) (string, error) {
	wanted, err := exemptions(in.Args)
	if err != nil {
		return "", err
	}
	var mended []string
	if n.joint.checks++; n.joint.chosen == nil || n.joint.checks%rechoose == 0 {
		chosen := map[family][]backend{}
		for f := range wanted {
			if chosen[f], err = n.choose(ctx, f); err != nil {
				return "", err
			}
		}
		n.joint.chosen = chosen
		if mended, err = n.spare(ctx, in.Args); err != nil {
			return "", err
		}
	}
	if len(in.Args.Marks) > 0 || n.marks != (markTable{}) { // without it, what policy denies gets through
		done, err := n.mark(ctx, in.Args.Marks)
		if err != nil {
			return "", err
		}
		mended = append(mended, done...)
	}
	for f, rules := range wanted {
		for _, b := range n.joint.chosen[f] {
			changed, err := n.putFirst(ctx, b, rules)
			if err != nil {
				return "", err
			}
			if changed {
				mended = append(mended, b.program("")+" rules first in nat POSTROUTING")
			}
		}
	}
	if onePort(in.Args) {
		return strings.Join(mended, ", "), nil
	}
	loosened, err := n.loosen(in)
	if err != nil {
		return "", err
	}
	kept, err := keepSource(in.Kept, false)
	if err != nil {
		return "", err
	}
	slices.Sort(mended)
	return strings.Join(slices.Concat(mended, loosened, kept), ", "), nil
}

func (n *Node) putFirst(ctx context.Context, b backend, want []rule) (bool, error) {
	rules, err := n.postrouting(ctx, b)
	if err != nil {
		return false, err
	}
	script := putFirst(rules, want)
	if script == "" {
		return false, nil
	}
	return true, n.restore(ctx, b, script)
}

// loosen records the former values durably before it writes.
func (n *Node) loosen(in *order) ([]string, error) {
	now, err := n.rpFilter()
	if err != nil {
		return nil, err
	}
	set := loosen(now)
	record := set // what comes later is remembered when it is touched
	if len(in.Former) == 0 {
		in.Former, record = map[string]int{}, now
	}
	news := false
	for name := range record {
		if _, known := in.Former[name]; !known {
			in.Former[name], news = now[name], true
		}
	}
	if news {
		if err := n.writeOrder(in); err != nil {
			return nil, err
		}
	}
	return n.setRPFilter(set)
}

// part takes a joint phase back, or what is left of one, even when its order was lost.
func (n *Node) part(ctx context.Context, _ step.JoinArgs) (Answer, error) {
	in, err := n.order()
	if err != nil {
		return Answer{}, err
	}
	done, err := n.spare(ctx, step.JoinArgs{})
	if err != nil {
		return Answer{}, err
	}
	marked, err := n.mark(ctx, nil)
	if err != nil {
		return Answer{}, err
	}
	done = append(done, marked...)
	for _, b := range backends() {
		tables, err := n.save(ctx, b)
		if err != nil {
			return Answer{}, err
		}
		script := putFirst(natPostrouting(tables), nil)
		if script == "" {
			continue
		}
		if err := n.restore(ctx, b, script); err != nil {
			return Answer{}, err
		}
		done = append(done, b.program("")+" rules gone")
	}
	if in != nil {
		now, err := n.rpFilter()
		if err != nil {
			return Answer{}, err
		}
		tightened, err := n.setRPFilter(tighten(now, in.Former))
		if err != nil {
			return Answer{}, err
		}
		kept, err := keepSource(in.Kept, true)
		if err != nil {
			return Answer{}, err
		}
		done = slices.Concat(done, tightened, kept)
		if err := n.removeOrder(); err != nil {
			return Answer{}, err
		}
		done = append(done, "order removed")
	}
	n.joint = joint{}
	if len(done) == 0 {
		return Answer{Message: "parted already"}, nil
	}
	return Answer{Changed: true, Message: "parted: " + strings.Join(done, ", ")}, nil
}

func natPostrouting(tables []table) []rule {
	var rules []rule
	for _, t := range tables {
		for _, r := range t.rules {
			if t.name == "nat" && r.chain == "POSTROUTING" {
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// order reads the state file; nil means that no joint phase is in force.
func (n *Node) order() (*order, error) {
	text, err := os.ReadFile(filepath.Join(n.Root, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the joint phase: %w", err)
	}
	var in order
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("read the joint phase from %s: %w", stateFile, err)
	}
	return &in, nil
}

func (n *Node) writeOrder(in *order) error {
	text, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("write the joint phase: %w", err)
	}
	path := filepath.Join(n.Root, stateFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the joint phase: %w", err)
	}
	if err := writeDurably(path, text); err != nil {
		return fmt.Errorf("write the joint phase: %w", err)
	}
	return nil
}

func (n *Node) removeOrder() error {
	path := filepath.Join(n.Root, stateFile)
	if err := errors.Join(os.RemoveAll(path), os.RemoveAll(path+".tmp")); err != nil {
		return fmt.Errorf("remove the joint phase: %w", err)
	}
	_ = os.Remove(filepath.Dir(path)) // unless moves of pods have records there
	return nil
}

// rpFilter reads rp_filter of every interface, "all" and "default".
func (n *Node) rpFilter() (map[string]int, error) {
	files, err := filepath.Glob(filepath.Join(n.Sys, "net/ipv4/conf/*/rp_filter"))
	if err != nil {
		return nil, fmt.Errorf("find rp_filter: %w", err)
	}
	values := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the interface has gone meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read rp_filter: %w", err)
		}
		value, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		values[filepath.Base(filepath.Dir(file))] = value
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("no rp_filter below %s", n.Sys)
	}
	return values, nil
}

// setRPFilter writes the values and says so; interfaces that have gone do not count.
func (n *Node) setRPFilter(set map[string]int) ([]string, error) {
	var done []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		value := strconv.Itoa(set[name])
		file, err := os.OpenFile(filepath.Join(n.Sys, "net/ipv4/conf", name, "rp_filter"), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return done, fmt.Errorf("set rp_filter: %w", err)
		}
		_, err = file.WriteString(value)
		if err = errors.Join(err, file.Close()); err != nil {
			return done, fmt.Errorf("set rp_filter of %s: %w", name, err)
		}
		done = append(done, "rp_filter "+name+"="+value)
	}
	return done, nil
}
