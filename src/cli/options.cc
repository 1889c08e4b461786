#include "cli/options.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/support/failure.h"
#include "cli/support/numbers.h"
#include "cli/support/text.h"
#include <gshm/gshm.hpp>

namespace gshm::cli {
namespace {

constexpr const char* kFooter = R"(Names are paths such as models/llama/w0. After -- a name may begin with a dash.
Sizes are bytes, 0x… in hex, or whole K, M, G, T of 1024 (8M, 8MiB).

Exit codes:
  0  done
  1  the operation failed
  2  bad option, argument or name
  3  no gshmd there, or it went away
  4  no such name, attribute or device
  5  not permitted (or sealed)
  6  the name exists
  7  no space on the device or the disk, or beyond an object's end
  8  timed out
  9  not possible: a directory, in use, or not supported by the device
 10  partly done: the snapshot lacks the listed names

Example:
  gshm create demo/x --size 8M && gshm ls -l demo
`gshm COMMAND --help` has more; docs/cli.md has it all.)";

constexpr const char* kCommandsHint = "`gshm --help` lists the commands";

// CLI11 parses [a,b] as a list and ++ as an end marker, and ignores -- after the first positional. An argument with
// this prefix is always a plain value. The prefix is removed where the value is stored.
constexpr char kMark = '\x01';

std::vector<std::string> marked_arguments(int argc, const char* const* argv) {
    std::vector<std::string> arguments;
    bool plain = false;
    for (int i = 1; i < argc; ++i) {
        std::string argument = argv[i];
        if (!plain && argument == "--") {
            plain = true;
            continue;
        }
        if (plain || argument == "++" || argument.starts_with('[') || argument.starts_with(kMark))
            argument.insert(0, 1, kMark);
        arguments.push_back(std::move(argument));
    }
    std::ranges::reverse(arguments);  // CLI11 takes them from the back
    return arguments;
}

CLI::Option* unmark(CLI::Option* option) {
    return option->transform(CLI::Validator(
        [](std::string& value) {
            if (value.starts_with(kMark)) value.erase(0, 1);
            return std::string();  // no error
        },
        ""));
}

// For positionals such as "SOURCE... NAME", the name already shows the count.
class HelpFormatter : public CLI::Formatter {
public:
    std::string make_option_usage(const CLI::Option* option) const override {
        return is_list(option) ? option->get_name(true) : Formatter::make_option_usage(option);
    }
    std::string make_option_opts(const CLI::Option* option) const override {
        return is_list(option) ? " (required)" : Formatter::make_option_opts(option);
    }

private:
    static bool is_list(const CLI::Option* option) { return option->get_name(true).find("... ") != std::string::npos; }
};

class Parser {
public:
    explicit Parser(CommandLine& line) : line_(line) {
        app_.name("gshm");
        app_.formatter(std::make_shared<HelpFormatter>());
        app_.require_subcommand(1);
        app_.set_version_flag("--version", fmt::format("gshm {}.{}.{}, libgshm {}", GSHM_VERSION_MAJOR,
                                                       GSHM_VERSION_MINOR, GSHM_VERSION_PATCH, gshm_version()))
            ->description("versions of this program and its library");
        app_.set_help_flag("-h,--help", "this text");
        app_.get_formatter()->column_width(34);
        app_.get_formatter()->label("SUBCOMMAND", "COMMAND");
        app_.get_formatter()->label("Subcommands", "Commands");
        app_.get_formatter()->label("REQUIRED", "(required)");
        app_.footer(kFooter);
        add_globals(app_);
        add_daemon_commands();
        add_name_commands();
        add_object_commands();
        add_copy_commands();
        add_tensor_commands();
        add_snapshot_commands();
    }

    void parse(int argc, const char* const* argv) { app_.parse(marked_arguments(argc, argv)); }
    const CLI::App& app() const { return app_; }
    std::string help() const { return app_.help(); }
    std::string version() const { return app_.version(); }
    // Of one command; "": of the program.
    std::string help(const std::string& command) const {
        if (command.empty()) return app_.get_formatter()->make_help(&app_, app_.get_name(), CLI::AppFormatMode::Normal);
        try {
            return app_.get_subcommand(command)->help(app_.get_name());
        } catch (const CLI::OptionNotFound&) {
            throw unknown_command(command);
        }
    }
    Failure failure(const CLI::ParseError& error) const {
        std::string message = error.what();
        std::string hint = kCommandsHint;
        const auto chosen = app_.get_subcommands();
        const auto unknown = app_.remaining();
        if (!chosen.empty()) {
            hint = fmt::format("see `gshm {} --help`", chosen.front()->get_name());
            // An unknown option is reported before a missing argument, which may follow from it.
            for (const auto& argument : chosen.front()->remaining())
                if (argument.starts_with('-')) {
                    message = "unknown option " + argument;
                    hint += "; a name that begins with a dash goes after --";
                    break;
                }
        } else if (dynamic_cast<const CLI::RequiredError*>(&error))
            message = unknown.empty()               ? "a command is needed"
                      : unknown[0].starts_with('-') ? "unknown option " + unknown[0]
                                                    : fmt::format("unknown command `{}`", unknown[0]);
        std::erase(message, kMark);
        return Failure::usage(printable(message), hint);
    }

private:
    static Failure unknown_command(const std::string& command) {
        return Failure::usage(fmt::format("unknown command `{}`", printable(command)), kCommandsHint);
    }

    // Added to each command too, so that they may stand before or after it.
    void add_globals(CLI::App& app) {
        unmark(app.add_option(
                   "--dir", line_.dir,
                   "gshmd's runtime folder (default: $GSHM_DIR, else /run/gshm for root, else $XDG_RUNTIME_DIR/gshm)"))
            ->type_name("DIR");
        app.add_flag("--json", line_.json, "JSON instead of tables");
    }

    template <typename Args>
    struct Command {
        CLI::App* app;
        std::shared_ptr<Args> args = std::make_shared<Args>();

        CLI::Option* name(const char* positional, std::string Args::* member, const char* text) const {
            return unmark(app->add_option(positional, (*args).*member, text))->required()->type_name("");
        }
        CLI::Option* names(std::vector<std::string> Args::* member, const char* text) const {
            return unmark(app->add_option("NAME", (*args).*member, text))->required()->type_name("");
        }
        // Two or more values. CLI11 cannot separate a list from the positional after it, so the command does.
        CLI::Option* several(const char* positionals, std::vector<std::string> Args::* member, const char* text) const {
            return unmark(app->add_option(positionals, (*args).*member, text))
                ->required()
                ->expected(2, 1 << 28)
                ->type_name("");
        }
        CLI::Option* flag(const char* flags, bool Args::* member, const char* text) const {
            return app->add_flag(flags, (*args).*member, text);
        }
        CLI::Option* device(std::string Args::* member) const {
            constexpr const char* kText = "such as cuda:0 or host; default: gshmd's first";
            return unmark(app->add_option("--device", (*args).*member, kText))->type_name("DEVICE");
        }
        // A value for one of the parsers in numbers.h; the member may be a std::optional.
        template <typename Member, typename Parse>
        CLI::Option* number(const std::string& option, Member Args::* member, Parse parse, const char* type,
                            const char* text) const {
            const auto store = [=, args = args](const std::string& value) { (*args).*member = parse(option, value); };
            return unmark(app->add_option_function<std::string>(option, store, text))->type_name(type);
        }
        // The ends of new objects.
        void lifetime() const {
            const auto ttl = [args = args](bool unused) {
                return [args, unused](const std::string& value) {
                    args->lifetime.ttl_ms = parse_duration(unused ? "--ttl-unused" : "--ttl", value);
                    args->lifetime.ttl_unused = unused;
                };
            };
            CLI::Option* since_creation = unmark(app->add_option_function<std::string>(
                "--ttl", ttl(false), "removed after this time, such as 10m, 1h30m or 2d"));
            since_creation->type_name("TIME");
            unmark(app->add_option_function<std::string>("--ttl-unused", ttl(true),
                                                         "removed after this time without a use"))
                ->type_name("TIME")
                ->excludes(since_creation);
            app->add_flag("--ephemeral", args->lifetime.ephemeral,
                          "goes on until it is interrupted; then the new objects are removed");
        }
        // May be repeated.
        CLI::Option* list(const std::string& option, std::vector<std::string> Args::* member, const char* type,
                          const char* text) const {
            const auto store = [=, args = args](const std::string& value) { ((*args).*member).push_back(value); };
            return unmark(app->add_option_function<std::string>(option, store, text))
                ->type_name(type)
                ->trigger_on_parse();
        }
        // An optional positional, which differs from an empty one.
        CLI::Option* optional_text(const char* positional, std::optional<std::string> Args::* member,
                                   const char* text) const {
            const auto store = [=, args = args](const std::string& value) { (*args).*member = value; };
            return unmark(app->add_option_function<std::string>(positional, store, text))->type_name("");
        }
    };

    CLI::App* add(const char* name, const char* text, const char* example) {
        CLI::App* app = app_.add_subcommand(name, text);
        app->set_help_flag("-h,--help", "this text");
        app->footer(fmt::format("Example:\n  {}", example));
        add_globals(*app);
        return app;
    }
    void add(const char* name, int (*run)(Context&), const char* text, const char* example) {
        add(name, text, example)->callback([this, run] { line_.command = run; });
    }
    template <typename Args>
    Command<Args> add(const char* name, int (*run)(Context&, const Args&), const char* text, const char* example) {
        Command<Args> command{add(name, text, example)};
        command.app->callback([this, run, args = command.args] {
            line_.command = [run, args](Context& context) { return run(context, *args); };
        });
        return command;
    }

    // The options that name an account with limits.
    void add_account(CLI::App& app, AccountArgs& args) {
        const auto text = [&](const char* option, std::optional<std::string>& member, const char* type,
                              const char* help) {
            unmark(app.add_option_function<std::string>(
                       option, [&member](const std::string& value) { member = value; }, help))
                ->type_name(type);
        };
        text("--user", args.user, "USER", "name or number");
        text("--group", args.group, "GROUP", "name or number");
        text("--directory", args.directory, "NAME", "the objects below a directory (--dir is gshmd's folder)");
        unmark(app.add_option("--device", args.device, "such as cuda:0; default: all devices together"))
            ->type_name("DEVICE");
        app.add_flag("-b,--exact", args.exact_bytes, "sizes in bytes");
    }

    void add_daemon_commands();
    void add_name_commands();
    void add_object_commands();
    void add_copy_commands();
    void add_tensor_commands();
    void add_snapshot_commands();

    CommandLine& line_;
    CLI::App app_{"gshm: /dev/shm for GPU memory. Creates, lists, reads, writes and removes the objects of gshmd."};
};

void Parser::add_daemon_commands() {
    add("ping", cmd_ping, "check that gshmd answers, and how fast", "gshm ping");

    const auto help_of = std::make_shared<std::string>();
    CLI::App* help_command = add("help", "show this text, or that of a command", "gshm help put");
    unmark(help_command->add_option("COMMAND", *help_of, "such as put; default: all of them"))->type_name("");
    help_command->callback([this, help_of] { line_.text = help(*help_of); });

    add("doctor", cmd_doctor, "check this machine for the features that gshm can use", "gshm doctor --json");

    const auto devices = add("devices", cmd_devices, "list the devices and their features", "gshm devices --json");
    devices.flag("-b,--bytes", &DfArgs::exact_bytes, "sizes in bytes");

    const auto df = add("df", cmd_df, "show the used and free memory of each device", "gshm df -b");
    df.flag("-b,--bytes", &DfArgs::exact_bytes, "sizes in bytes");

    const auto limit = add("limit", cmd_limit, "limit a user, a group or a directory; without values, list limits",
                           "gshm limit --user bob --device cuda:0 --bytes 10G --objects 100000");
    add_account(*limit.app, limit.args->account);
    limit.number("--bytes", &LimitArgs::bytes, parse_limit, "SIZE", "at most, or none");
    limit.number("--soft-bytes", &LimitArgs::soft_bytes, parse_limit, "SIZE", "may be exceeded for the grace, or none");
    limit.number("--objects", &LimitArgs::objects, parse_limit_count, "COUNT", "at most, or none");
    limit.number("--soft-objects", &LimitArgs::soft_objects, parse_limit_count, "COUNT",
                 "may be exceeded for the grace, or none");
    limit.number("--grace", &LimitArgs::grace_s, parse_span, "TIME",
                 "how long a soft limit may be exceeded, such as 12h or 1h30m; default: 7d");
    const auto reserve = [args = limit.args](const std::string& value) { args->reserve = value; };
    unmark(limit.app->add_option_function<std::string>("--reserve", reserve,
                                                       "memory of --device that other programs keep, or none"))
        ->type_name("SIZE|N%");

    const auto quota = add("quota", cmd_quota, "show what you use, against the limits", "gshm quota --all");
    add_account(*quota.app, quota.args->account);
    quota.flag("-a,--all", &QuotaArgs::all, "of all users and groups; root and the user of gshmd only");
    const auto tiers = add("tiers", cmd_tiers, "list the tiers: host memory and folders that take evicted objects",
                           "gshm tiers --json");
    tiers.flag("-b,--bytes", &DfArgs::exact_bytes, "sizes in bytes");

    const auto mount =
        add("mount", cmd_mount, "show the objects as files below a directory; without one, list the mounts",
            "gshm mount /mnt/models --read-only --subdir models");
    mount.optional_text("DIR", &MountArgs::path, "an existing directory, as gshmd sees it");
    mount.flag("-r,--read-only", &MountArgs::read_only, "no changes through this mount");
    unmark(mount.app->add_option("--subdir", mount.args->subdirectory, "a directory of the objects' names as the root"))
        ->type_name("NAME");
    unmark(mount.app->add_option("--source", mount.args->source, "the text that mount and df show; default: gshm"))
        ->type_name("TEXT");

    const auto umount = add("umount", cmd_umount, "unmount; the objects stay", "gshm umount /mnt/models");
    umount.optional_text("DIR", &UmountArgs::path, "one of several mounts");
    umount.flag("-a,--all", &UmountArgs::all, "all mounts");
    umount.flag("-l,--lazy", &UmountArgs::lazy, "even if files in it are open");

    add("reload", cmd_reload, "have gshmd read its configuration again (gshm.toml)", "gshm reload");

    const auto metrics = add("metrics", cmd_metrics, "print gshmd's metrics for Prometheus",
                             "gshm metrics --output /var/lib/node_exporter/gshm.prom");
    metrics.flag("--openmetrics", &MetricsArgs::openmetrics, "as OpenMetrics instead of Prometheus' text format");
    unmark(metrics.app->add_option("-o,--output", metrics.args->output,
                                   "into this file, in one step, and without the metrics of the process; for\n"
                                   "node_exporter's textfile collector"))
        ->type_name("FILE");

    const auto shutdown = add("shutdown", cmd_shutdown, "end gshmd; returns when it has ended", "gshm shutdown --keep");
    shutdown.flag("--keep", &ShutdownArgs::keep, "keep its objects for the next gshmd");
}

void Parser::add_name_commands() {
    const auto ls = add("ls", cmd_ls, "list names", "gshm ls -l models/llama");
    ls.name("NAME", &LsArgs::path, "directory or object; default: the root")->required(false);
    ls.flag("-l,--long", &LsArgs::details, "with mode, owner, size, device, state");
    ls.flag("-r,-R,--recursive", &LsArgs::recursive, "all objects below NAME, by their full names");
    ls.flag("-b,--bytes", &LsArgs::exact_bytes, "sizes in bytes");

    const auto mv = add("mv", cmd_mv, "rename, over an existing object if there is one", "gshm mv new/w0 models/w0");
    mv.name("OLD", &MvArgs::from, "object or directory");
    mv.optional_text("NEW", &MvArgs::to, "its new name, or a directory to move it into");
    mv.flag("-n,--no-replace", &MvArgs::no_replace, "fail if NEW exists");
    unmark(mv.app->add_option("--device", mv.args->device, "instead of a new name: to memory of that device"))
        ->type_name("DEVICE");
    mv.flag("--keep-holders", &MvArgs::keep_holders, "with --device: processes that read it keep its old memory");

    const auto promote =
        add("promote", cmd_promote, "bring objects back from their tiers to their device", "gshm promote models/w0");
    promote.names(&NamesArgs::names, "objects");

    const auto demote =
        add("demote", cmd_demote, "move objects from their device into a tier, or from host memory on to the folder",
            "gshm demote models/w0");
    demote.names(&NamesArgs::names, "objects, evictable or not, that no process uses");

    const auto rm = add("rm", cmd_rm, "remove names; memory is freed with the last lease", "gshm rm -r models/llama");
    rm.names(&RmArgs::names, "objects; directories with -r");
    rm.flag("-r,-R,--recursive", &RmArgs::recursive, "directories with all their entries");
    rm.flag("-f,--force", &RmArgs::force, "ignore names that do not exist");

    const auto wait = add("wait", cmd_wait, "wait until a name exists, or until it does not",
                          "gshm wait models/w0 --sealed --timeout 30");
    wait.name("NAME", &WaitArgs::name, "object");
    CLI::Option* sealed = wait.flag("--sealed", &WaitArgs::sealed, "and until it is sealed");
    wait.flag("--gone", &WaitArgs::gone, "until it is deleted, renamed or replaced")->excludes(sealed);
    wait.number("--timeout", &WaitArgs::timeout_ms, parse_seconds, "SECONDS", "give up after this; default: never");

    const auto watch = add("watch", cmd_watch, "print changes of names as they happen, one per line",
                           R"(gshm watch models/ --existing
  gshm watch models/w0 --count 1 --timeout 60)");
    watch.name("PREFIX", &WatchArgs::prefix, "beginning of the names, such as models/; default: all names")
        ->required(false);
    watch.flag("--existing", &WatchArgs::existing, "first list the existing names");
    watch.flag("-b,--bytes", &WatchArgs::exact_bytes, "sizes in bytes");
    const auto count = [](const std::string& option, const std::string& text) {
        return parse_count(option, text, 1, 1u << 30);
    };
    watch.number("--count", &WatchArgs::count, count, "N", "end after N events; default: never");
    watch.number("--timeout", &WatchArgs::timeout_ms, parse_seconds, "SECONDS", "end after this; default: never");
}

void Parser::add_object_commands() {
    const auto create = add("create", cmd_create, "create an object of zeros, open for writing",
                            "gshm create demo/x --size 8M --device cuda:0 --mode 0640 --fill 0xff");
    create.name("NAME", &CreateArgs::name, "its name; missing directories are created");
    create.number("--size", &CreateArgs::size_bytes, parse_size, "SIZE", "such as 8M")->required();
    create.device(&CreateArgs::device);
    create.number("--mode", &CreateArgs::mode, parse_mode, "OCTAL",
                  "permission bits; default: 0600, or by the directory's default ACL");
    create.number("--fill", &CreateArgs::fill, parse_byte, "BYTE", "fill it, with 0 to 255 or 0x00 to 0xff");
    create.flag("--compressible", &CreateArgs::compressible, "in compressible memory, where the device has it");
    create.lifetime();
    create.flag("--dedicated", &CreateArgs::dedicated, "share no allocation with other objects, even if small");
    create.flag("--evictable", &CreateArgs::evictable, "it may leave a full device for a tier while nothing uses it");

    const auto stat = add("stat", cmd_stat, "show all properties of objects", "gshm stat models/w0");
    stat.names(&StatArgs::names, "objects or directories");
    stat.flag("-a,--all", &StatArgs::all, "all tensors of an object, not only the first ones");

    const auto seal = add("seal", cmd_seal, "make objects immutable", "gshm seal models/w0 models/w1");
    seal.names(&NamesArgs::names, "objects");

    const auto pin = add("pin", cmd_pin, "keep objects from expiring, and on their device", "gshm pin models/w0");
    pin.names(&NamesArgs::names, "objects; as their owner within gshmd's --pin-share");

    const auto unpin = add("unpin", cmd_unpin, "undo pin", "gshm unpin models/w0");
    unpin.names(&NamesArgs::names, "objects");

    const auto ttl = add("ttl", cmd_ttl, "set or show the time after which an object is removed",
                         R"(gshm ttl cache/k0 10m
  gshm ttl cache/k0                        (shows it)
  gshm ttl cache/k0 2h --unused            (since its last use)
  gshm ttl cache/k0 off)");
    ttl.name("NAME", &TtlArgs::name, "object");
    const auto ttl_time = [](const std::string& option, const std::string& text) {
        return text == "off" ? uint64_t{0} : parse_duration(option, text);
    };
    ttl.number("TIME", &TtlArgs::ttl_ms, ttl_time, "", "such as 500ms, 10m, 1h30m or 2d, from now on; or off");
    ttl.flag("--unused", &TtlArgs::unused, "counts from the last use, and not while it is in use");

    const auto holders = add("holders", cmd_holders, "list the processes that hold an object, or unlinked objects",
                             "gshm holders models/w0");
    holders.optional_text("NAME", &HoldersArgs::name, "object; none: all objects that are unlinked but still held");
    holders.flag("-b,--bytes", &HoldersArgs::exact_bytes, "sizes in bytes");

    const auto make =
        add("mkdir", cmd_mkdir, "make directories that stay when they are empty", "gshm mkdir models/team --mode 2770");
    make.names(&MkdirArgs::names, "directories");
    make.number("--mode", &MkdirArgs::mode, parse_directory_mode, "OCTAL",
                "default: 0755, or what the default ACL of the directory above gives");

    const auto share = add("share", cmd_share, "let single users and groups read objects; show who may",
                           R"(gshm share models/llama -r --to bob,@research
  gshm share models/llama                  (shows the rights))");
    share.names(&ShareArgs::names, "objects, or directories for all that is made in them later");
    share.list("--to", &ShareArgs::with, "USER,@GROUP", "users, and groups after @; names or numbers");
    share.flag("-w,--write", &ShareArgs::write, "also write");
    share.flag("-r,-R,--recursive", &ShareArgs::recursive, "also all that is in the directories now");
    share.flag("-p,--parents", &ShareArgs::parents, "also let them search the directories above");

    const auto unshare =
        add("unshare", cmd_unshare, "end the sharing with users and groups", "gshm unshare models/llama -r --from bob");
    unshare.names(&ShareArgs::names, "objects or directories");
    unshare.list("--from", &ShareArgs::with, "USER,@GROUP", "users, and groups after @; default: all");
    unshare.flag("-r,-R,--recursive", &ShareArgs::recursive, "also all that is in the directories");

    const auto attr = add("attr", cmd_attr, "list, read, set or remove an object's attributes",
                          "gshm attr models/w0 shape '[4096,4096]'");
    attr.name("NAME", &AttrArgs::name, "object");
    attr.optional_text("KEY", &AttrArgs::key, "attribute to read, set or remove; none: list all");
    attr.optional_text("VALUE", &AttrArgs::value, "its new value");
    attr.flag("-d,--delete", &AttrArgs::remove, "remove KEY");
    attr.flag("-x,--hex", &AttrArgs::hex, "VALUE is bytes in hex");
}

void Parser::add_copy_commands() {
    const auto write =
        add("write", cmd_write, "write standard input to an object", "echo hello | gshm write demo/x --offset 4K");
    write.name("NAME", &WriteArgs::name, "object, not sealed");
    write.number("--offset", &WriteArgs::offset, parse_size, "SIZE", "where to begin; default: 0");

    const auto cat =
        add("cat", cmd_cat, "write an object to standard output", "gshm cat demo/x --offset 4K --length 16 | xxd");
    cat.name("NAME", &CatArgs::name, "object");
    cat.number("--offset", &CatArgs::offset, parse_size, "SIZE", "where to begin; default: 0");
    cat.number("--length", &CatArgs::length, parse_size, "SIZE", "bytes, cut at the end of the object; default: all");

    const auto put = add("put", cmd_put, "copy files to new, sealed objects, which get their names when complete",
                         R"(gshm put w0.bin models/w0 --device cuda:0
  gshm put -r llama/ models/llama          (all files in the folder)
  zstd -dc w0.zst | gshm put - models/w0   (standard input))");
    put.several("SOURCE... NAME", &PutArgs::sources_and_name,
                "files (- is standard input; folders with -r), then the object to create, or a directory for them");
    put.flag("-r,-R,--recursive", &PutArgs::recursive, "folders with all their files");
    put.flag("--replace", &PutArgs::replace, "replace an existing object; by default it is an error");
    put.flag("--verify", &PutArgs::verify, "compare the object with the file before it gets its name");
    put.device(&PutArgs::device);
    put.flag("--evictable", &PutArgs::evictable, "they may leave a full device for a tier while nothing uses them");
    put.number("--mode", &PutArgs::mode, parse_mode, "OCTAL",
               "permission bits; default: 0600, or those of the replaced object");
    put.lifetime();
    put.number("--size", &PutArgs::size_bytes, parse_size, "SIZE", "size of standard input or a pipe, if known");

    const auto get = add("get", cmd_get, "copy objects to files, which are replaced when the copy is complete",
                         R"(gshm get models/w0 w0.bin
  gshm get -r models/llama backup/         (all objects in the directory)
  gshm get models/w0 - | sha256sum         (standard output))");
    get.several("NAME... FILE", &GetArgs::names_and_file,
                "objects (directories with -r), then the file to write, a folder for them, or - (standard output)");
    get.flag("-r,-R,--recursive", &GetArgs::recursive, "directories with all their entries");
    get.flag("--verify", &GetArgs::verify, "compare the written file with the object before it is renamed");
}

void Parser::add_tensor_commands() {
    const auto load = add("load", cmd_load,
                          "load the tensors of safetensors files, once for all processes; prints the objects' names",
                          R"(gshm load llama/ models/llama --device cuda:0
  gshm load model.safetensors --filter 'layers.0.*' --filter 'embed*')");
    load.name("PATH", &LoadArgs::path, "a file, or a folder with such files or an index");
    load.optional_text("NAME", &LoadArgs::name,
                       "of the object, or of a directory for the files of a folder; default: made from the path");
    load.device(&LoadArgs::device);
    load.flag("--evictable", &LoadArgs::evictable, "they may leave a full device for a tier while nothing uses them");
    const auto add_filter = [args = load.args](const std::string& value) { args->filters.push_back(value); };
    unmark(load.app->add_option_function<std::string>("--filter", add_filter,
                                                      "only tensors whose names match; may be repeated"))
        ->type_name("PATTERN")
        ->trigger_on_parse();
    load.number("--mode", &LoadArgs::mode, parse_mode, "OCTAL",
                "permission bits; default: the rights to read the file");
    load.number("--timeout", &LoadArgs::timeout_ms, parse_seconds, "SECONDS", "give up after this; default: never");

    load.lifetime();

    const auto unload = add("unload", cmd_unload, "remove loaded tensors; memory is freed with the last lease",
                            "gshm unload models/llama");
    unload.names(&NamesArgs::names, "loaded files, or directories of them");
}

void Parser::add_snapshot_commands() {
    const auto threads = [](const std::string& option, const std::string& text) {
        return parse_count(option, text, 1, 64);
    };
    const auto level = [](const std::string& option, const std::string& text) {
        return static_cast<int>(parse_count(option, text, 0, 19));
    };
    const auto snapshot = add("snapshot", cmd_snapshot, "save objects to a folder; continues if interrupted",
                              "gshm snapshot /backup/gpu models/llama");
    snapshot.name("DIR", &SnapshotArgs::folder, "folder of the snapshot; created if missing");
    snapshot.names(&SnapshotArgs::names, "objects and directories; default: everything")->required(false);
    snapshot.number("-j,--threads", &SnapshotArgs::threads, threads, "N", "threads; default: by the processors");
    snapshot.number("--level", &SnapshotArgs::level, level, "N", "of zstd, 0 (none) to 19; default: 1");
    snapshot.flag("--update", &SnapshotArgs::update, "update the existing snapshot");

    const auto restore = add("restore", cmd_restore, "restore objects from a snapshot; continues if interrupted",
                             "gshm restore /backup/gpu");
    restore.name("DIR", &RestoreArgs::folder, "folder of the snapshot");
    restore.names(&RestoreArgs::names, "only these, and all names below them; default: everything")->required(false);
    restore.number("-j,--threads", &RestoreArgs::threads, threads, "N", "threads; default: by the processors");
    restore.device(&RestoreArgs::device)->description("restore everything to this device; default: the saved one");
    restore.flag("--replace", &RestoreArgs::replace, "replace names that exist with other contents");
    restore.flag("-n,--dry-run", &RestoreArgs::dry_run, "check every byte of the snapshot and load nothing");
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
    CommandLine line;
    Parser parser(line);
    try {
        parser.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        line.text = parser.help();
    } catch (const CLI::CallForVersion&) {
        line.text = parser.version() + '\n';
    } catch (const CLI::ParseError& error) {
        throw parser.failure(error);
    }
    return line;
}

void inspect_command_line(const std::function<void(const CLI::App&)>& inspect) {
    CommandLine line;
    inspect(Parser(line).app());
}

bool wants_json(int argc, const char* const* argv) {
    for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i)
        if (std::string_view(argv[i]) == "--json") return true;
    return false;
}

}  // namespace gshm::cli
