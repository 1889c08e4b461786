// A manual page in the language of man(7), for groff and mandoc.
#pragma once

#include <string>
#include <string_view>

namespace gshm::manual {

// Text of one or several lines, safe at any place of a page: no character of it is a request or an escape.
std::string escaped(std::string_view text);

class Page {
public:
    // `summary`: one line, without a full stop at its end.
    // other_names: what else the page explains, for whatis and apropos.
    Page(std::string name, std::string section, std::string_view summary, std::string_view version,
         const std::vector<std::string>& other_names = {});

    const std::string& name() const { return name_; }
    // "gshm-put.1"
    std::string file_name() const { return name_ + "." + section_; }
    std::string text() const { return text_; }

    // The texts below are plain, unless the name says otherwise.
    void section(std::string_view title);
    void subsection(std::string_view title);
    void paragraph(std::string_view text);
    void markup_paragraph(std::string_view markup);
    // A term with its explanation; the explanation may follow as other calls, indented by nest() and unnest().
    void term(std::string_view term, std::string_view explanation);
    void markup_term(std::string_view markup, std::string_view explanation_markup);
    void bullet(std::string_view markup);
    // Lines as they are, in a typewriter's font.
    void code(std::string_view lines);
    void nest();
    void unnest();
    // "gshm(1)", "gshm-put(1)": a list of references.
    void see_also(std::string_view names);

private:
    void line(std::string_view text);
    void begin_paragraph();

    std::string name_;
    std::string section_;
    std::string text_;
    bool after_title_ = false;  // where mandoc wants no .PP
};

std::string bold(std::string_view text);
std::string italic(std::string_view text);
// A page that is another one: "gshm_open.3" for a function in gshm_objects_by_name.3.
std::string alias(std::string_view file_name, std::string_view section);

}  // namespace gshm::manual
