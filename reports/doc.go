// Package reports shows a result to people and to machines: lines on a terminal, result.json, JUnit XML, and one page of HTML
// with a timeline to look at; and several results as one page.
//
// All of it is a function of values: the result and the saved histories. Everything that came from outside, scenario names,
// reasons and SQL included, is escaped or made printable on its way out, and nothing that is written here loads anything
// from anywhere.
package reports
