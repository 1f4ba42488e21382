package compact

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// item is one entry of a step's list, before it is folded.
type item struct {
	// text is the entry as JSON, without what follows from its place: the ID, and whether it is done together with the
	// entry before.
	text   string
	node   string // the only node that the text names, which is {node} in it; "" where there is none, or several
	beside bool
}

// shape is a step whose lists are folded. Its fields are those of step.Step, in the same order.
type shape struct {
	ID       string            `json:"id"`
	Group    string            `json:"group,omitempty"`
	Does     string            `json:"does,omitempty"`
	Title    string            `json:"title"`
	Why      string            `json:"why,omitempty"`
	Wave     string            `json:"wave,omitempty"`
	Part     string            `json:"part,omitempty"`
	Node     string            `json:"node,omitempty"`
	Before   []json.RawMessage `json:"before,omitempty"`
	Actions  []json.RawMessage `json:"actions"`
	After    []json.RawMessage `json:"after,omitempty"`
	Gate     *step.Gate        `json:"gate,omitempty"`
	Undo     []json.RawMessage `json:"undo,omitempty"`
	Alone    bool              `json:"alone,omitempty"`
	NoReturn bool              `json:"noReturn,omitempty"`
	Stop     bool              `json:"stop,omitempty"`
	Estimate step.Duration     `json:"estimate,omitempty"`
}

const noID, beside = `{"id":"",`, `"beside":true,`

// actionItems are the items of actions. The ID of an action stays where it is not its number in the list.
func (n *names) actionItems(actions []step.Action, id string) ([]item, error) {
	items := make([]item, len(actions))
	said := texts{}
	var text bytes.Buffer // of one action after the other
	encoder := json.NewEncoder(&text)
	for i, a := range actions {
		items[i].beside, a.Together = a.Together, false
		number, found := strings.CutPrefix(a.ID, id)
		numbered := found && number == strconv.Itoa(i+1)
		if numbered {
			a.ID = ""
		}
		text.Reset()
		if err := encoder.Encode(a.Document()); err != nil {
			return nil, err
		}
		whole := bytes.TrimSuffix(text.Bytes(), []byte("\n"))
		if !numbered {
			items[i].text = string(whole)
			continue
		}
		whole = whole[len(noID)-1:]
		whole[0] = '{'
		n.tell(&items[i], whole, said)
	}
	return items, nil
}

// conditionItems are the items of conditions.
func (n *names) conditionItems(conditions []step.Condition) ([]item, error) {
	items := make([]item, len(conditions))
	said := texts{}
	for i := range conditions {
		text, err := json.Marshal(conditions[i].Document())
		if err != nil {
			return nil, err
		}
		n.tell(&items[i], text, said)
	}
	return items, nil
}

// tell sets an item's text, and the node that it names.
func (n *names) tell(it *item, text []byte, among texts) {
	if node, ok := n.in(text); ok && !placeholders(text) {
		it.node, text = node, replace(text, node, "{node}")
	}
	it.text = among.shared(text)
}

// texts are those of a list, to themselves: what a list says for each of many nodes is held once.
type texts map[string]string

func (t texts) shared(text []byte) string {
	known, ok := t[string(text)]
	if !ok {
		known = string(text)
		t[known] = known
	}
	return known
}

// entry is the item as an entry of a list: with its node, and saying whether it is done together with the entry before.
func (it item) entry() json.RawMessage {
	text := it.template()
	if it.node == "" {
		return text
	}
	return fill(text, map[string]string{"node": it.node})
}

// template is the entry with {node}.
func (it item) template() json.RawMessage {
	if it.beside {
		return json.RawMessage("{" + beside + it.text[1:])
	}
	return json.RawMessage(it.text)
}
