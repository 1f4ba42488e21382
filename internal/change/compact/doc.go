// Package compact is the form in which a plan's steps are stored: each thing is said once. Fold makes the form, and
// Expand makes the steps of it again.
//
// The form has two means, both of which people can read:
//
//   - An entry with forEach in a step's list stands for what it says under do, for each of the nodes that it names.
//     {node} in it is the name of the node.
//   - A procedure is a step that runs several times, said once. A step that runs it is a row: the procedure, the wave
//     and the nodes. {wave} and {part} in a procedure are the row's wave and its part, {nodes} are the nodes as people
//     read them, and {node} outside of forEach is the first of them.
//
// Fold writes out whatever would not expand to exactly the same step, so a plan never means something else than the
// steps that were made and verified. Nothing but the names of nodes and of waves is ever replaced.
//
// Belongs here: the form, and that it is exact. Does not belong here: YAML and the rest of a plan's file (plan), and
// what steps mean (step).
package compact
